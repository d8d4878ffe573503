"""Read why few responses pass: where none passed, or where most could not be judged."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest
from pathlib import Path

from gapft_harness.core.records import Verdict
from gapft_harness.report.reading.columns import format_gold, read_columns
from gapft_harness.run_directory import layout
from gapft_harness.run_directory.parquet import read_rows
from gapft_harness.verification.reasons import Kind, classify_reason, needs_explanation, rank_kinds

#: Kinds of reason, and responses, that are shown.
KINDS_SHOWN, RESPONSES_SHOWN = 6, 3

_COLUMNS = ("problem_id", "index", "status", "reason", "text")


@dataclass(frozen=True, slots=True)
class FailedResponse:
    """One response that did not pass."""

    where: str
    problem_id: str
    index: int
    status: str
    reason: str
    text: str
    gold: str = ""


@dataclass(frozen=True, slots=True)
class Failures:
    """Responses of a split or of trained models where none passed or few could be judged.

    Attributes:
        where: ``pool``, ``audit``, or the arms.
        total: the number of responses.
        kinds: responses that did not pass by kind of reason, the most frequent first.
        examples: the first response of the most frequent kinds; where there are few kinds, more
            responses, to other problems.
    """

    where: str
    total: int
    kinds: tuple[tuple[Kind, int], ...]
    examples: tuple[FailedResponse, ...]


def read_failures(
    run_path: Path, verdict_counts: Mapping[str, Mapping[str, int]], arms: Sequence[str]
) -> tuple[Failures, ...]:
    """Read the failures of pool and audit, and of all arms with failures together.

    Args:
        run_path: the run directory.
        verdict_counts: responses by status, of splits and arms by name.
        arms: names of the trained arms.

    Returns:
        An entry for each group with too few passing or judged responses; often empty.
    """
    notable = [name for name, counts in verdict_counts.items() if needs_explanation(counts)]
    groups: dict[str, list[str]] = {
        split: [split] for split in ("pool", "audit") if split in notable
    }
    if failed_arms := [name for name in arms if name in notable]:
        groups[f"audit, after training ({', '.join(failed_arms)})"] = failed_arms
    return tuple(_read_group(run_path, where, names) for where, names in groups.items())


def _read_group(run_path: Path, where: str, names: Sequence[str]) -> Failures:
    total = 0
    kinds = Counter[Kind]()
    examples: dict[Kind, dict[str, FailedResponse]] = {}
    for name in names:
        for row in read_rows(run_path / layout.judged_table_path(name), _COLUMNS):
            verdict = Verdict(row["status"], row["reason"])
            total += 1
            if not verdict.passed:
                kind = classify_reason(verdict)
                kinds[kind] += 1
                first = examples.setdefault(kind, {})
                if len(first) < RESPONSES_SHOWN:
                    first.setdefault(row["problem_id"], FailedResponse(name, **row))
    order = rank_kinds(kinds)
    rounds = zip_longest(*(examples[kind].values() for kind, _ in order))
    chosen = [response for round_ in rounds for response in round_ if response is not None]
    problems = run_path / layout.problems_path("pool" if where == "pool" else "audit")
    shown = tuple(_add_golds(chosen[:RESPONSES_SHOWN], problems))
    return Failures(where, total, tuple(order), shown)


def _add_golds(responses: Sequence[FailedResponse], problems: Path) -> Iterator[FailedResponse]:
    ids = [response.problem_id for response in responses]
    columns = read_columns(problems, ("problem_id", "gold"), [("problem_id", "in", ids)])
    golds = dict(zip(columns["problem_id"], columns["gold"], strict=True))
    for response in responses:
        yield replace(response, gold=format_gold(golds[response.problem_id]))
