"""Read why few responses pass: where none passed, or where most could not be judged."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import zip_longest
from pathlib import Path

from gapft_harness.core.records import Verdict
from gapft_harness.presentation.content import Row
from gapft_harness.report.reading.columns import format_gold, read_columns
from gapft_harness.run_directory import layout
from gapft_harness.run_directory.parquet import read_rows
from gapft_harness.verification.reasons import Kind, classify_reason, needs_explanation, rank_kinds

#: Kinds of reason, and responses, that are shown.
KINDS_SHOWN, RESPONSES_SHOWN = 6, 3

_COLUMNS = ("problem_id", "index", "status", "reason", "text")


@dataclass(frozen=True, slots=True)
class Failures:
    """Why responses did not pass, of splits and trained models where few did, as rows of tables.

    Attributes:
        reasons: by group (``pool``, ``audit``, or the arms) the most frequent kinds of reason.
        responses: by group the first response of the most frequent kinds; where there are few
            kinds, more responses, to other problems.
    """

    reasons: Sequence[Row] = ()
    responses: Sequence[Row] = ()


def read_failures(
    run_path: Path, verdict_counts: Mapping[str, Mapping[str, int]], arms: Sequence[str]
) -> Failures:
    """Read the failures of pool and audit, and of all arms with failures together.

    Args:
        run_path: the run directory.
        verdict_counts: responses by status, of splits and arms by name.
        arms: names of the trained arms.

    Returns:
        The rows of the groups with too few passing or judged responses; often none.
    """
    notable = [name for name, counts in verdict_counts.items() if needs_explanation(counts)]
    groups: dict[str, list[str]] = {
        split: [split] for split in ("pool", "audit") if split in notable
    }
    if failed_arms := [name for name in arms if name in notable]:
        groups[f"audit, after training ({', '.join(failed_arms)})"] = failed_arms
    parts = [_read_group(run_path, where, names) for where, names in groups.items()]
    return Failures(
        [row for part in parts for row in part.reasons],
        [row for part in parts for row in part.responses],
    )


def _read_group(run_path: Path, where: str, names: Sequence[str]) -> Failures:
    total = 0
    kinds = Counter[Kind]()
    examples: dict[Kind, dict[str, Row]] = {}
    for name in names:
        for row in read_rows(run_path / layout.judged_table_path(name), _COLUMNS):
            verdict = Verdict(row["status"], row["reason"])
            total += 1
            if not verdict.passed:
                kind = classify_reason(verdict)
                kinds[kind] += 1
                first = examples.setdefault(kind, {})
                if len(first) < RESPONSES_SHOWN:
                    first.setdefault(row["problem_id"], {"where": name, **row})
    order = rank_kinds(kinds)
    rounds = zip_longest(*(examples[kind].values() for kind, _ in order))
    chosen = [response for round_ in rounds for response in round_ if response is not None]
    problems = run_path / layout.problems_path("pool" if where == "pool" else "audit")
    shown = chosen[:RESPONSES_SHOWN]
    ids = [response["problem_id"] for response in shown]
    columns = read_columns(problems, ("problem_id", "gold"), [("problem_id", "in", ids)])
    golds = dict(zip(columns["problem_id"], columns["gold"], strict=True))
    return Failures(
        [
            {
                "where": where,
                "status": status,
                "reason": kind,
                "responses": count,
                "share": Fraction(count, total),
            }
            for (status, kind), count in order[:KINDS_SHOWN]
        ],
        [{**row, "gold": format_gold(golds[row["problem_id"]])} for row in shown],
    )
