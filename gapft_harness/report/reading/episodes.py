"""How episodes went: attempts used, and finals that passed the public tests alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gapft_harness.core.records import GREEDY, Arm
from gapft_harness.run_directory import layout
from gapft_harness.run_directory.manifest import Manifest


@dataclass(frozen=True, slots=True)
class EpisodeCounts:
    """Episodes of one model on one set of problems.

    Attributes:
        who: ``source``, or the condition, its seeds added up.
        kind: ``greedy`` or ``samples``.
        ended: episodes by the attempt that ended them, the first attempt first.
        passed: episodes whose final submission passed all tests.
        public_only: episodes that ended before the last attempt, so their public tests passed,
            and whose final submission failed all the same: a hidden test was what it lacked.
    """

    who: str
    kind: str
    ended: tuple[int, ...]
    passed: int
    public_only: int

    @property
    def total(self) -> int:
        """Episodes."""
        return sum(self.ended)


@dataclass(frozen=True, slots=True)
class Repeats:
    """Greedy episodes run several times (``executions.Executions.facts``), over all tables.

    Attributes:
        times: executions of each.
        verdicts_differ: how many got different verdicts.
        feedback_differs: of how many a public test came out otherwise.
        named: problems of either kind, the first few: their table's name and theirs.
    """

    times: int
    episodes: int
    verdicts_differ: int
    feedback_differs: int
    named: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class EpisodeFacts:
    """What the report says of episodes.

    Attributes:
        counts: the source's greedy episodes and samples, then the conditions'; on the audit.
        repeats: None where every program was run once.
    """

    attempts: int
    counts: tuple[EpisodeCounts, ...]
    repeats: Repeats | None


#: Problems named whose executions differed.
_NAMED = 5


def read_episodes(run_path: Path, manifest: Manifest, arms: Sequence[Arm]) -> EpisodeFacts | None:
    """Reads the audit's episodes; None where a decode is a single response run once."""
    episode = manifest["task"]["episode"]
    attempts: int = episode["attempts"]
    repeats = _repeats(manifest["executions"]) if episode["executions"] > 1 else None
    if attempts == 1:
        return EpisodeFacts(1, (), repeats) if repeats else None
    table = run_path / layout.responses("audit")
    counts = [
        _count("source", "greedy", [(table, [("index", "=", GREEDY)])], attempts),
        _count("source", "samples", [(table, [("index", "!=", GREEDY)])], attempts),
    ]
    for condition in dict.fromkeys(arm.condition for arm in arms):
        files = [
            (run_path / layout.decisions(arm), None) for arm in arms if arm.condition == condition
        ]
        counts.append(_count(condition, "greedy", files, attempts))
    return EpisodeFacts(attempts, tuple(counts), repeats)


def _count(who: str, kind: str, files: Sequence[tuple[Path, Any]], attempts: int) -> EpisodeCounts:
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    ended, passed, public_only = [0] * attempts, 0, 0
    for path, chosen in files:
        table = pq.read_table(path, columns=["index", "attempts", "status"], filters=chosen)
        earlier = pc.list_value_length(table["attempts"]).to_pylist()
        for used, status in zip(earlier, table["status"].to_pylist(), strict=True):
            ended[used] += 1
            passed += status == "pass"
            public_only += status != "pass" and used + 1 < attempts
    return EpisodeCounts(who, kind, tuple(ended), passed, public_only)


def _repeats(executions: Mapping[str, Mapping[str, Any]]) -> Repeats:
    named = [
        (table, problem)
        for table, facts in sorted(executions.items())
        for problem in sorted({*facts["verdicts_differ"], *facts["feedback_differs"]})
    ]
    return Repeats(
        times=max((facts["times"] for facts in executions.values()), default=1),
        episodes=sum(facts["episodes"] for facts in executions.values()),
        verdicts_differ=sum(len(facts["verdicts_differ"]) for facts in executions.values()),
        feedback_differs=sum(len(facts["feedback_differs"]) for facts in executions.values()),
        named=tuple(named[:_NAMED]),
    )
