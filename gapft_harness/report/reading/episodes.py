"""Read episodes: the attempts used, and final submissions that passed only the public tests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from pathlib import Path
from typing import Any

from gapft_harness.core.records import SOURCE, Arm
from gapft_harness.presentation.content import Row
from gapft_harness.report.names import condition_name
from gapft_harness.report.reading.columns import DEPLOYED
from gapft_harness.run_directory import layout
from gapft_harness.run_directory.directory import RunDirectory
from gapft_harness.run_directory.recorded import read_judged_facts


@dataclass(frozen=True, slots=True)
class EpisodeFacts:
    """The report's facts on episodes, as rows of tables.

    Attributes:
        attempts: the most attempts of an episode.
        rows: the source's deployment episodes and samples, then the conditions', on the audit; none
            where an episode has one attempt.
        executions: greedy episodes that were executed several times, over all tables; empty where
            every program was executed once.
        differing: the first problems whose executions differ, as ``table: problem``.
    """

    attempts: int
    rows: Sequence[Row] = ()
    executions: Row = field(default_factory=dict)
    differing: Sequence[str] = ()


#: Problems with different executions that the report names.
_PROBLEMS_NAMED = 5


def read_episodes(run: RunDirectory, arms: Sequence[Arm]) -> EpisodeFacts | None:
    """Read the audit's episodes; return None where a decode is one response, executed once."""
    episode = run.task["episode"]
    attempts: int = episode["attempts"]
    facts = EpisodeFacts(attempts)
    if episode["executions"] > 1:
        facts = _add_executions(facts, read_judged_facts(run, "executions"))
    if attempts == 1:
        return facts if facts.executions else None
    table = run.path / layout.responses_path("audit")
    kind = "greedy" if run.recipe.search.deployment is None else "deployment"
    rows = [
        _count_episodes(SOURCE, kind, [table], DEPLOYED, attempts),
        _count_episodes(SOURCE, "samples", [table], [("index", ">=", 0)], attempts),
    ]
    tables: dict[str, list[Path]] = {}
    for arm in arms:
        tables.setdefault(arm.condition, []).append(run.path / layout.decisions_path(arm))
    rows += [
        _count_episodes(condition, kind, files, DEPLOYED, attempts)
        for condition, files in tables.items()
    ]
    return replace(facts, rows=rows)


def _count_episodes(who: str, kind: str, files: Sequence[Path], filters: Any, attempts: int) -> Row:
    """Count episodes by the attempt that ended them, and those that passed all or public tests.

    An episode that ended before the last attempt passed the public tests; if its final submission
    did not pass, it failed a hidden test.

    Args:
        who: ``SOURCE``, or the condition, whose seeds are added.
        kind: ``greedy`` (``deployment`` if these decodes are sampled) or ``samples``.
        files: the tables.
        filters: select the episodes.
        attempts: the most attempts of an episode.
    """
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
    episodes = sum(ended)
    total = max(episodes, 1)
    return {
        "label": f"source, {kind}" if who == SOURCE else condition_name(who),
        "who": who,
        "kind": kind,
        "episodes": episodes,
        **{f"attempt_{n}": Fraction(count, total) for n, count in enumerate(ended, 1)},
        **{f"ended_at_attempt_{n}": count for n, count in enumerate(ended, 1)},
        "passed": passed,
        "passed_share": Fraction(passed, total),
        "passed_public_tests_alone": public_only,
        "public_share": Fraction(public_only, total),
    }


def _add_executions(
    facts: EpisodeFacts, executions: Mapping[str, Mapping[str, Any]]
) -> EpisodeFacts:
    """Add the sums of each table's fact ``executions``."""
    tables = executions.values()
    problems = [
        f"{table}: {problem}"
        for table, item in sorted(executions.items())
        for problem in sorted({*item["verdicts_differ"], *item["feedback_differs"]})
    ]
    row = {
        "times": max((item["times"] for item in tables), default=1),
        "episodes": sum(item["episodes"] for item in tables),
        "verdicts_differ": sum(len(item["verdicts_differ"]) for item in tables),
        "feedback_differs": sum(len(item["feedback_differs"]) for item in tables),
    }
    return replace(facts, executions=row, differing=problems[:_PROBLEMS_NAMED])
