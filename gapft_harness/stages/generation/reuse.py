"""Count the responses and verdicts of a table that the store has, for a plan."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from gapft_harness.core.records import GREEDY
from gapft_harness.stages.generation.chunks import Chunk, DecodePhase
from gapft_harness.stages.generation.stored_files import read_head


@dataclass
class ReuseCounts:
    """Counts of reused work and of work to do.

    Attributes:
        reused: stored responses, by the run directory that they were generated for.
        new: maximum number of responses to generate.
        why: the reasons why they are not stored, as far as they are known.
        judged: verdicts to compute for stored responses.
    """

    reused: dict[str, int] = field(default_factory=dict)
    new: int = 0
    why: list[str] = field(default_factory=list)
    judged: int = 0

    def describe(self, run: Path) -> str:
        """Describe reused work with its source, and new work with the reasons.

        Args:
            run: the run directory.
        """
        run_name = str(run.resolve())
        others = [Path(name).name for name in self.reused if name != run_name]
        count = sum(self.reused.values())
        parts = []
        if count:
            source_text = f" from {', '.join(others)}" if others else ""
            parts.append(
                f"{count:,} responses reused{source_text}" if self.new else f"reused{source_text}"
            )
        if self.new:
            parts.append(f"{self.new:,} new" + (f": {'; '.join(self.why)}" if self.why else ""))
        if self.judged:
            parts.append(f"{self.judged:,} verdicts new")
        return ", ".join(parts)


def count_reused_responses(chunks: Sequence[Chunk], attempts: int) -> ReuseCounts:
    """Count the responses of chunks that the store has.

    Args:
        chunks: the chunks of a split, or of a worker's share.
        attempts: maximum number of attempts of an episode.
    """
    counts, reused = ReuseCounts(), Counter[str]()
    unknown_problems = 0
    for chunk in chunks:
        missing = chunk.list_missing()
        for phase in chunk.places:
            if phase not in missing:
                head = read_head(chunk.find_path(phase))
                reused[head.run] += head.responses
                continue
            counts.new += len(chunk.members) * len(phase.indices) * attempts
            if not chunk.places[phase][0].exists():
                continue
            if stored_samples := _count_stored_samples(chunk, phase):
                change = f"search.k {stored_samples} → {_count_samples(chunk.places)}"
                counts.why = [*dict.fromkeys([*counts.why, change])]
            elif len(missing) == len(chunk.places):
                unknown_problems += phase == missing[0] and len(chunk.members)
    if unknown_problems:
        counts.why.append(f"{unknown_problems:,} problems or prompts that are not in the store")
    counts.reused = dict(sorted(reused.items()))
    return counts


def count_missing_verdicts(
    reuse: ReuseCounts, verdicts: Sequence[Chunk], stored: Sequence[Mapping[DecodePhase, int]]
) -> None:
    """Add the missing verdicts on stored responses to the counts.

    Args:
        reuse: the counts of the responses.
        verdicts: chunks with the places of their verdicts.
        stored: for each chunk, the responses by phase that were stored before.
    """
    for chunk, counts in zip(verdicts, stored, strict=True):
        for phase in chunk.list_missing():
            if phase not in counts:
                continue
            reuse.judged += counts[phase]


def count_stored_responses(chunk: Chunk) -> dict[DecodePhase, int]:
    """Count the stored responses of a chunk by phase."""
    missing = chunk.list_missing()
    return {
        phase: read_head(chunk.find_path(phase)).responses
        for phase in chunk.places
        if phase not in missing
    }


def _count_stored_samples(chunk: Chunk, phase: DecodePhase) -> int:
    """Count a chunk's stored samples per problem, in blocks of any size."""
    if GREEDY in phase.indices:
        return 0
    group, name = chunk.places[phase]
    ends = (
        file.name.split(".")[1] for file in group.folder.glob(f"{name.split('.')[0]}.*-*.jsonl")
    )
    return max((int(end.partition("-")[2]) + 1 for end in ends), default=0)


def _count_samples(phases: Iterable[DecodePhase]) -> int:
    return max(max(phase.indices) for phase in phases) + 1
