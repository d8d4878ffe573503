"""Generate and judge the responses of a table; shared by search, audit and experiments.

The problems are divided into chunks, by the problems and the settings alone: not by the remaining
work, the clock or the number of workers. For each chunk and phase the store has a part with
responses, and one with verdicts on them, under keys of all their inputs.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from gapft_harness.core.identities import content_hash
from gapft_harness.core.records import GREEDY, Problem
from gapft_harness.core.streams import SampleStreams
from gapft_harness.engine.outputs import OWN_RUN_ONLY, Output
from gapft_harness.engine.step import Part, Step
from gapft_harness.engine.store import Store
from gapft_harness.hooks.judge import Judge
from gapft_harness.hooks.protocols import ReportProgress, Sampler
from gapft_harness.stages.generation.chunks import (
    Chunk,
    DecodePhase,
    count_chunk_problems,
    divide_into_chunks,
)
from gapft_harness.stages.generation.episodes import require_feedback
from gapft_harness.stages.generation.generating import ChunkGenerator, generate_chunks
from gapft_harness.stages.generation.judging import UNDECIDED, ChunkJudge, judge_chunks
from gapft_harness.stages.generation.lines import Responses
from gapft_harness.stages.generation.table import write_responses


@dataclass(frozen=True)
class Decodes:
    """What responses and verdicts depend on, besides problems and phases.

    Attributes:
        sampler: the description of the sampler (``DecodeBuilder``).
        verifier: the description of the verifier (``DecodeBuilder.verifier``).
        chunk: ``search.chunk``, the problems of a chunk.
        streams: the samples' random streams.
        attempts: maximum number of attempts of an episode.
        executions: how often deployment responses are judged.
        logs: the description of the logs that responses are taken from; None if they are generated.
    """

    sampler: Mapping[str, Any]
    verifier: Mapping[str, Any]
    chunk: int
    streams: SampleStreams
    attempts: int = 1
    executions: int = 1
    logs: Mapping[str, Any] | None = None

    def place_responses(
        self, problems: Sequence[Problem], phases: Sequence[DecodePhase]
    ) -> list[Chunk]:
        """Divide problems into chunks, with the parts that their responses are stored in.

        A part depends on the problems of its chunk, not on the others, nor on other phases.
        """
        size = count_chunk_problems(self.chunk, phases)
        steps = {phase: self._build_step(phase, size) for phase in phases}
        chunks = []
        for members in divide_into_chunks(problems, size):
            prompts = [[p.id, p.prompt, [*p.turns]] for p in members]
            problems_hash = content_hash(prompts)
            if self.attempts > 1:  # feedback follows from golds
                problems_hash = content_hash([problems_hash, [p.gold for p in members]])
            parts = {
                phase: Part(step, {"problems": problems_hash, "indices": [*phase.indices]})
                for phase, step in steps.items()
            }
            chunks.append(Chunk(members, parts))
        return chunks

    def place_verdicts(self, chunk: Chunk, responses: Mapping[DecodePhase, Output]) -> Chunk:
        """Return a chunk's problems with the parts that verdicts are stored in.

        Args:
            chunk: the problems, with the parts of their responses.
            responses: those parts that are stored.
        """
        golds = content_hash([problem.gold for problem in chunk.members])
        parts = {}
        for phase, output in responses.items():
            settings: dict[str, Any] = {"verifier": self.verifier}
            settings["responses"] = chunk.parts[phase].step.key
            if self.executions > 1 and GREEDY in phase.indices:
                settings["executions"] = self.executions
            step = Step("verdicts", judge_chunks, settings)
            parts[phase] = Part(step, {"responses": output.content, "golds": golds})
        return Chunk(chunk.members, parts)

    def _build_step(self, phase: DecodePhase, size: int) -> Step:
        """Build what the parts of a phase have in common."""
        decoding: dict[str, Any] = {
            "max_gen_toks": phase.decoding.max_gen_toks,
            "until": list(phase.decoding.until),
        }
        settings: dict[str, Any] = {"sampler": self.sampler, "decoding": decoding, "chunk": size}
        if phase.decoding.samples_deployment or phase.indices != (GREEDY,):
            decoding["temperature"] = phase.decoding.temperature
            decoding["top_p"] = phase.decoding.top_p
            decoding["top_k"] = phase.decoding.top_k
            decoding["samples_deployment"] = phase.decoding.samples_deployment
            settings["streams"] = asdict(self.streams)
        if self.attempts > 1:
            settings["episode"] = {"attempts": self.attempts, "verifier": self.verifier}
        if self.logs is not None:
            settings["logs"] = self.logs
        return Step("responses", generate_chunks, settings)


def generate_and_judge(
    decodes: Decodes,
    problems: Sequence[Problem],
    phases: Sequence[DecodePhase],
    path: Path | None,
    *,
    store: Store,
    run: str,
    load_sampler: Callable[[], Sampler],
    require_same_model: Callable[[Mapping[str, Any]], None],
    judge: Judge,
    progress: ReportProgress,
    share: tuple[int, int] = (0, 1),
    keeps_verdicts: bool = False,
) -> tuple[dict[str, Any], Mapping[str, Any], Responses]:
    """Generate and judge the responses that the store lacks, and write the table.

    Args:
        decodes: what the responses depend on.
        problems: the problems.
        phases: the phases to generate.
        path: the table to write; None to store parts only.
        store: the store.
        run: the run directory that responses are made for, recorded with each part.
        load_sampler: loads the model.
        require_same_model: called with the sampler's description of its model; raises if it is
            another one than that of the run's other tables.
        judge: the verifier; it is closed at the end.
        progress: called as by ``generate_chunks``, then with verdicts.
        share: (worker number from 0, number of workers) among which the chunks are divided.
        keeps_verdicts: whether the verdicts are the sampler's, not the verifier's.

    Returns:
        The facts of ``table.write_responses``, with the ``seconds`` in which the responses were
        generated, and where their parts are ``stored``; empty without a table. A table with
        undecided verdicts holds in its own run only.
        The sampler's description of its model, and the responses.

    Raises:
        UserError: the model differs from that of the run's other tables, or a stored part was
            changed.
    """
    chunks = decodes.place_responses(problems, phases)
    with judge, contextlib.ExitStack() as stack:
        require_feedback(judge, decodes.attempts, decodes.verifier["name"])

        def load() -> ChunkGenerator:
            sampler = stack.enter_context(contextlib.closing(load_sampler()))
            source = sampler.describe()
            require_same_model(source)
            return ChunkGenerator(
                sampler,
                source,
                decodes.streams,
                judge,
                decodes.attempts,
                run,
                keeps_verdicts=keeps_verdicts,
            )

        # Generate the chunks that the store does not have
        source = generate_chunks(store, chunks, load, progress, share)
        if source:  # a worker without a chunk has none
            require_same_model(source)
        # Judge all responses of this share
        responses = Responses()
        seconds = 0.0
        stored: dict[str, set[str]] = {"responses": set(), "verdicts": set()}
        verdict_chunks = []
        for chunk in chunks[share[0] :: share[1]]:
            parts = chunk.find_parts(store)
            for part in parts.values():
                responses.add(part)
                seconds += part.facts["seconds"]
            verdict_chunks.append(decodes.place_verdicts(chunk, parts))
            stored["responses"] |= {part.step.place for part in chunk.parts.values()}
            stored["verdicts"] |= {part.step.place for part in verdict_chunks[-1].parts.values()}
        chunk_judge = ChunkJudge(judge, decodes.attempts, decodes.executions, run)
        judge_chunks(store, verdict_chunks, responses, chunk_judge, progress)
    # Write the table
    if path is None:
        return {}, source, responses
    extra = {
        "seconds": round(seconds, 3),
        "stored": {name: sorted(places) for name, places in stored.items()},
    }
    facts = write_responses(path, responses, problems, extra=extra, executions=decodes.executions)
    if any(facts["verdicts"].get(status) for status in UNDECIDED):
        facts[OWN_RUN_ONLY] = True
    return facts, source, responses


def describe_stored(
    decodes: Decodes, store: Store, problems: Sequence[Problem], phases: Sequence[DecodePhase]
) -> str:
    """Describe how many of a table's responses and verdicts the store has, and how many are new.

    Raises:
        UserError: a stored part was changed.
    """
    stored = new = unjudged = 0
    for chunk in decodes.place_responses(problems, phases):
        parts = chunk.find_parts(store)
        for phase in chunk.parts:
            if phase in parts:
                stored += parts[phase].facts["responses"]
            else:
                new += chunk.count_decodes([phase]) * decodes.attempts
        verdicts = decodes.place_verdicts(chunk, parts)
        unjudged += sum(parts[p].facts["responses"] for p in verdicts.list_missing(store))
    reused = f"{stored:,} responses reused" if new else "reused"
    counts = (
        reused if stored else "",
        f"{new:,} new" if new else "",  # at most: an episode may end before its last attempt
        f"{unjudged:,} verdicts new" if unjudged else "",
    )
    return ", ".join(filter(None, counts))
