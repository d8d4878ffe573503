"""Read episodes: the attempts used, and final submissions that passed only the public tests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gapft_harness.core.records import SOURCE, Arm
from gapft_harness.report.reading.columns import DEPLOYED
from gapft_harness.run_directory import layout
from gapft_harness.run_directory.directory import RunDirectory
from gapft_harness.run_directory.recorded import read_judged_facts


@dataclass(frozen=True, slots=True)
class EpisodeCounts:
    """Episodes of one model on one set of problems.

    Attributes:
        who: ``SOURCE``, or the condition; its seeds are added.
        kind: ``greedy`` (``deployment`` if these decodes are sampled) or ``samples``.
        ended: episodes by the attempt that ended them, from the first attempt.
        passed: episodes whose final submission passed all tests.
        public_only: episodes that ended before the last attempt, so that the public tests passed,
            but whose final submission failed a hidden test.
    """

    who: str
    kind: str
    ended: tuple[int, ...]
    passed: int
    public_only: int

    @property
    def total(self) -> int:
        """The number of episodes."""
        return sum(self.ended)


@dataclass(frozen=True, slots=True)
class Repeats:
    """Greedy episodes that were executed several times, over all tables.

    The facts are those of ``executions.Executions.facts``.

    Attributes:
        times: executions of each episode.
        episodes: the number of episodes.
        verdicts_differ: episodes with different verdicts.
        feedback_differs: episodes where the outcome of a public test differed.
        named: the first problems of either kind, as ``table: problem``.
    """

    times: int
    episodes: int
    verdicts_differ: int
    feedback_differs: int
    named: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class EpisodeFacts:
    """The report's facts on episodes.

    Attributes:
        attempts: the most attempts of an episode.
        counts: the source's deployment episodes and samples, then the conditions', on the audit.
        repeats: None where every program was executed once.
    """

    attempts: int
    counts: tuple[EpisodeCounts, ...]
    repeats: Repeats | None


#: Problems with different executions that the report names.
_PROBLEMS_NAMED = 5


def read_episodes(run: RunDirectory, arms: Sequence[Arm]) -> EpisodeFacts | None:
    """Read the audit's episodes; return None where a decode is one response, executed once."""
    episode = run.task["episode"]
    attempts: int = episode["attempts"]
    executions = read_judged_facts(run, "executions")
    repeats = _read_repeats(executions) if episode["executions"] > 1 else None
    if attempts == 1:
        return EpisodeFacts(1, (), repeats) if repeats else None
    table = run.path / layout.responses_path("audit")
    kind = "greedy" if run.recipe.search.deployment is None else "deployment"
    counts = [
        _count_episodes(SOURCE, kind, [table], DEPLOYED, attempts),
        _count_episodes(SOURCE, "samples", [table], [("index", ">=", 0)], attempts),
    ]
    tables: dict[str, list[Path]] = {}
    for arm in arms:
        tables.setdefault(arm.condition, []).append(run.path / layout.decisions_path(arm))
    counts += [
        _count_episodes(condition, kind, files, DEPLOYED, attempts)
        for condition, files in tables.items()
    ]
    return EpisodeFacts(attempts, tuple(counts), repeats)


def _count_episodes(
    who: str, kind: str, files: Sequence[Path], filters: Any, attempts: int
) -> EpisodeCounts:
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    ended = [0] * attempts
    passed = 0
    public_only = 0
    for path in files:
        table = pq.read_table(path, columns=["index", "attempts", "status"], filters=filters)
        earlier = pc.list_value_length(table["attempts"]).to_pylist()
        for used, status in zip(earlier, table["status"].to_pylist(), strict=True):
            ended[used] += 1
            passed += status == "pass"
            public_only += status != "pass" and used + 1 < attempts
    return EpisodeCounts(who, kind, tuple(ended), passed, public_only)


def _read_repeats(executions: Mapping[str, Mapping[str, Any]]) -> Repeats:
    tables = executions.values()
    problems = [
        f"{table}: {problem}"
        for table, facts in sorted(executions.items())
        for problem in sorted({*facts["verdicts_differ"], *facts["feedback_differs"]})
    ]
    return Repeats(
        times=max((facts["times"] for facts in tables), default=1),
        episodes=sum(facts["episodes"] for facts in tables),
        verdicts_differ=sum(len(facts["verdicts_differ"]) for facts in tables),
        feedback_differs=sum(len(facts["feedback_differs"]) for facts in tables),
        named=tuple(problems[:_PROBLEMS_NAMED]),
    )
