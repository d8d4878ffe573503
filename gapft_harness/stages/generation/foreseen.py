"""Count the responses and verdicts of a table that the store has, and explain missing ones."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from gapft_harness.core.records import GREEDY
from gapft_harness.stages.generation.chunks import Chunk, Phase, list_groups
from gapft_harness.stages.generation.parts import read_head
from gapft_harness.store.explain import describe_toolchain, explain, find_other_versions
from gapft_harness.store.store import Group

#: The key of the counts in a job's result.
FORESEEN = "foreseen"


@dataclass
class Foreseen:
    """Counts of reused work and of work to do.

    Attributes:
        reused: stored responses, by the run directory that they were generated for.
        new: maximum number of responses to generate.
        why: the reasons why they are not stored.
        judged: verdicts to compute for stored responses.
        judged_why: the reasons why these are not stored.
    """

    reused: dict[str, int] = field(default_factory=dict)
    new: int = 0
    why: list[str] = field(default_factory=list)
    judged: int = 0
    judged_why: list[str] = field(default_factory=list)

    @classmethod
    def sum(cls, parts: Iterable[Mapping[str, Any]]) -> Foreseen:
        """Add the counts of several jobs, from their ``to_facts``."""
        total, reused = cls(), Counter[str]()
        for part in parts:
            reused.update(part["reused"])
            total.new += part["new"]
            total.judged += part["judged"]
            total.why = [*dict.fromkeys([*total.why, *part["why"]])]
            total.judged_why = [*dict.fromkeys([*total.judged_why, *part["judged_why"]])]
        total.reused = dict(sorted(reused.items()))
        return total

    def facts(self) -> dict[str, Any]:
        """Return the counts as JSON values, for a job's result."""
        return asdict(self)

    def describe(self, run: Path) -> str:
        """Describe reused work with its source, and new work with the reasons.

        Args:
            run: the run directory.
        """
        this = str(run.resolve())
        others = [Path(name).name for name in self.reused if name != this]
        count = sum(self.reused.values())
        parts = []
        if count:
            whence = f" from {', '.join(others)}" if others else ""
            parts.append(f"{count:,} responses reused{whence}" if self.new else f"reused{whence}")
        if self.new:
            parts.append(f"{self.new:,} new" + (f": {'; '.join(self.why)}" if self.why else ""))
        if self.judged:
            why = f": {'; '.join(self.judged_why)}" if self.judged_why else ""
            parts.append(f"{self.judged:,} verdicts new{why}")
        return ", ".join(parts)


def foresee_responses(chunks: Sequence[Chunk], attempts: int) -> Foreseen:
    """Count the responses of chunks that the store has.

    Args:
        chunks: the chunks of a split, or of a worker's share.
        attempts: maximum number of attempts of an episode.
    """
    found, reused = Foreseen(), Counter[str]()
    unexplained: dict[Phase, int] = {}
    unknown = 0
    for chunk in chunks:
        missing = chunk.missing()
        for phase in chunk.places:
            if phase not in missing:
                head = read_head(chunk.path(phase))
                reused[head.run] += head.responses
                continue
            found.new += len(chunk.members) * len(phase.indices) * attempts
            if not chunk.places[phase][0].exists():
                unexplained[phase] = 1
            elif before := _count_stored(chunk, phase):
                change = f"search.k {before} → {_most(chunk.places)}"
                found.why = [*dict.fromkeys([*found.why, change])]
            elif len(missing) == len(chunk.places):
                unknown += phase == missing[0] and len(chunk.members)
    for phase in unexplained:
        group = next(chunk.places[phase][0] for chunk in chunks)
        found.why = [*dict.fromkeys([*found.why, *explain(group)])]
    if unknown:
        found.why.append(f"{unknown:,} problems or prompts that are not in the store")
    found.reused = dict(sorted(reused.items()))
    return found


def foresee_verdicts(
    found: Foreseen, verdicts: Sequence[Chunk], stored: Sequence[Mapping[Phase, int]]
) -> None:
    """Add the missing verdicts on stored responses to the counts.

    Args:
        found: the counts of the responses.
        verdicts: chunks with the places of their verdicts.
        stored: for each chunk, the responses by phase that were stored before.
    """
    for chunk, counts in zip(verdicts, stored, strict=True):
        for phase in chunk.missing():
            if phase not in counts:
                continue
            found.judged += counts[phase]
            group = chunk.places[phase][0]
            if not group.exists() and not found.judged_why:
                found.judged_why = explain(group)


def describe_tables(found: Sequence[Foreseen], run: Path) -> str:
    """Describe how many arms' decodes are new and how many are reused, with their source.

    Args:
        found: the counts of each arm.
        run: the run directory.
    """
    new = [of for of in found if of.new]
    why = [*dict.fromkeys(word for of in new for word in of.why)]
    this = str(run.resolve())
    others = dict.fromkeys(Path(name).name for of in found for name in of.reused if name != this)
    whence = f", the others reused from {', '.join(others)}" if others else ""
    if not new:
        return f"reused from {', '.join(others)}" if others else "reused"
    reasons = f": {'; '.join(why)}" if why else ""
    return f"{len(new)} of {len(found)} arms new{reasons}{whence}"


def count_stored(chunk: Chunk) -> dict[Phase, int]:
    """Count the stored responses of a chunk by phase."""
    missing = chunk.missing()
    return {of: read_head(chunk.path(of)).responses for of in chunk.places if of not in missing}


def accept_versions(chunks: Sequence[Chunk]) -> list[Chunk]:
    """Use the files of other library versions for those that are not stored."""
    known: dict[str, list[Group]] = {}

    def place(group: Group, name: str) -> tuple[Group, str]:
        if (group.folder / name).exists():
            return group, name
        if group.name not in known:
            known[group.name] = find_other_versions(group)
        there = (of for of in known[group.name] if (of.folder / name).exists())
        return next(there, group), name

    return [
        Chunk(chunk.members, {phase: place(*at) for phase, at in chunk.places.items()})
        for chunk in chunks
    ]


def list_toolchains(chunks: Sequence[Chunk]) -> list[str]:
    """List the toolchains that made the chunks' groups."""
    return sorted({describe_toolchain(group.made_from) for group in list_groups(chunks)})


def _count_stored(chunk: Chunk, phase: Phase) -> int:
    """Count a chunk's stored samples per problem, in blocks of any size."""
    if GREEDY in phase.indices or phase.unsolved:
        return 0
    group, name = chunk.places[phase]
    ends = (
        file.name.split(".")[1] for file in group.folder.glob(f"{name.split('.')[0]}.*-*.jsonl")
    )
    return max((int(end.partition("-")[2]) + 1 for end in ends), default=0)


def _most(phases: Iterable[Phase]) -> int:
    return max(max(phase.indices) for phase in phases) + 1
