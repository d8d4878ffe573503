"""The decodes of a table: which responses each problem gets, in which parts they are stored."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gapft_harness.core.records import BLOCK, GREEDY, Decoding, Problem
from gapft_harness.core.streams import derive_key
from gapft_harness.engine.outputs import Output
from gapft_harness.engine.step import Part
from gapft_harness.engine.store import Store
from gapft_harness.recipe.sections import Search


@dataclass(frozen=True, slots=True)
class DecodePhase:
    """Responses that every problem of a chunk gets and that are stored together.

    Attributes:
        decoding: the decoding of these responses.
        indices: ``GREEDY`` alone, or sample numbers.
    """

    decoding: Decoding
    indices: tuple[int, ...]


@dataclass(frozen=True)
class Chunk:
    """Some problems with the parts that their responses or verdicts are stored in.

    Attributes:
        members: the problems.
        parts: the part of each phase, in the order of generation.
    """

    members: Sequence[Problem]
    parts: Mapping[DecodePhase, Part]

    @property
    def place(self) -> str:
        """The place whose claim allows to make its parts."""
        return next(iter(self.parts.values())).place

    def count_decodes(self, phases: Iterable[DecodePhase]) -> int:
        """Count the decodes of some phases: those of all problems."""
        return len(self.members) * sum(len(phase.indices) for phase in phases)

    def list_missing(self, store: Store) -> list[DecodePhase]:
        """List the phases that are not stored yet."""
        return [phase for phase, part in self.parts.items() if not store.has(part.place)]

    def find_parts(self, store: Store) -> dict[DecodePhase, Output]:
        """Return the stored parts after checking their content.

        Raises:
            UserError: a part was changed after it was stored.
        """
        outputs = {phase: store.find(part) for phase, part in self.parts.items()}
        return {phase: output for phase, output in outputs.items() if output is not None}


def read_decoding(facts: Mapping[str, Any]) -> Decoding:
    """Read the greedy deployment decode from the fact ``decoding`` of a task."""
    return Decoding(False, facts["max_gen_toks"], tuple(facts["until"]))


def build_deployment_decoding(greedy: Decoding, search: Search) -> Decoding:
    """Build the decoding of the deployment decode: the greedy one, or sampled once.

    Args:
        greedy: the greedy decode, with limit and stop strings.
        search: the recipe's section.
    """
    if (deployment := search.deployment) is None:
        return greedy
    return Decoding(
        True,
        greedy.max_gen_toks,
        greedy.until,
        deployment.temperature,
        deployment.top_p,
        deployment.top_k,
        samples_deployment=True,
    )


def build_sampled_decoding(greedy: Decoding, search: Search) -> Decoding:
    """Build the decoding of samples, with limit and stop strings of the greedy decode."""
    return Decoding(
        True, greedy.max_gen_toks, greedy.until, search.temperature, search.top_p, search.top_k
    )


def build_single_phase(decoding: Decoding) -> DecodePhase:
    """Build the phase of one deployment decode with this decoding."""
    return DecodePhase(decoding, (GREEDY,))


def build_sample_phases(decoding: Decoding, samples: int) -> list[DecodePhase]:
    """Build the phases of a number of samples, without a greedy decode.

    Args:
        decoding: the samples' decoding.
        samples: the number of samples of each problem.
    """
    blocks = [range(first, min(first + BLOCK, samples)) for first in range(0, samples, BLOCK)]
    return [DecodePhase(decoding, tuple(block)) for block in blocks]


def count_chunk_problems(chunk: int, phases: Sequence[DecodePhase]) -> int:
    """Return the number of problems in a chunk: ``search.chunk``, or ``BLOCK`` times as many.

    Chunks with one response per problem are larger. So they have as many responses as other chunks:
    batches are full, and a killed command loses about the same amount of work.
    """
    is_single = all(len(phase.indices) == 1 for phase in phases)
    return chunk * BLOCK if is_single else chunk


def divide_into_chunks(problems: Sequence[Problem], chunk: int) -> list[list[Problem]]:
    """Divide problems into chunks, in the order in which a limit selects problems.

    So a larger limit keeps all full chunks of a smaller one. Within a chunk, longer prompts come
    first, so that batches have prompts of similar length. A worker gets complete chunks, so the
    number of workers does not change responses.
    """
    ordered = sorted(problems, key=lambda problem: (derive_key("limit", problem.id), problem.id))
    return [
        sorted(ordered[start : start + chunk], key=lambda member: (-len(member.prompt), member.id))
        for start in range(0, len(ordered), chunk)
    ]
