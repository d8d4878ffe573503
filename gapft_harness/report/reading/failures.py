"""Read why few responses pass: where none passed, or where most could not be judged."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest
from pathlib import Path
from typing import Any

from gapft_harness.core.records import Verdict
from gapft_harness.report.reading.columns import columns, plain_gold
from gapft_harness.run_directory import layout
from gapft_harness.verification.reasons import Kind, is_telling, kind_of, ranked

#: Kinds of reason, and responses, that are shown.
KINDS_SHOWN, RESPONSES_SHOWN = 6, 3

_ROWS = 4096


@dataclass(frozen=True, slots=True)
class Failed:
    """One response that did not pass."""

    where: str
    problem_id: str
    index: int
    status: str
    reason: str
    text: str
    gold: str


@dataclass(frozen=True, slots=True)
class Failures:
    """Responses of a split or of trained models where none passed or few could be judged.

    Attributes:
        where: ``pool``, ``audit``, or the arms.
        statuses: responses by status.
        kinds: responses that did not pass by kind of reason, the most frequent first.
        examples: the first response of the most frequent kinds; where there are few kinds, more
            responses, to other problems.
    """

    where: str
    statuses: Mapping[str, int]
    kinds: tuple[tuple[Kind, int], ...]
    examples: tuple[Failed, ...]

    @property
    def total(self) -> int:
        """The number of responses."""
        return sum(self.statuses.values())


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
    telling = [name for name, counts in verdict_counts.items() if is_telling(counts)]
    tables: list[tuple[str, dict[str, Path]]] = [
        (split, {split: run_path / layout.judged(split)})
        for split in ("pool", "audit")
        if split in telling
    ]
    if failed := [name for name in arms if name in telling]:
        label = f"audit, after training ({', '.join(failed)})"
        tables.append((label, {name: run_path / layout.judged(name) for name in failed}))
    return tuple(
        _read(label, files, run_path / layout.problems("pool" if label == "pool" else "audit"))
        for label, files in tables
    )


def _read(label: str, files: Mapping[str, Path], problems: Path) -> Failures:
    statuses: Counter[str] = Counter()
    kinds: Counter[Kind] = Counter()
    first: dict[Kind, list[Failed]] = {}
    for name, path in files.items():
        for row in _rows(path):
            verdict = Verdict(row["status"], row["reason"])
            statuses[verdict.status] += 1
            if not verdict.passed:
                kind = kind_of(verdict)
                kinds[kind] += 1
                kept = first.setdefault(kind, [])
                if len(kept) < RESPONSES_SHOWN and row["problem_id"] not in {
                    of.problem_id for of in kept
                }:
                    kept.append(Failed(name, **row, gold=""))
    order = ranked(kinds)
    in_turn = zip_longest(*(first[kind] for kind, _ in order))
    shown = [of for round_ in in_turn for of in round_ if of is not None][:RESPONSES_SHOWN]
    return Failures(label, dict(statuses), tuple(order), tuple(_with_golds(shown, problems)))


def count_statuses(path: Path) -> dict[str, int]:
    """Count the responses of each status in a table of judged responses."""
    import pyarrow.parquet as pq

    counts = pq.read_table(path, columns=["status"]).column("status").value_counts().to_pylist()
    return {of["values"]: of["counts"] for of in counts}


def _rows(path: Path) -> Iterator[dict[str, Any]]:
    import pyarrow.parquet as pq

    names = ["problem_id", "index", "status", "reason", "text"]
    with pq.ParquetFile(path) as file:
        for batch in file.iter_batches(_ROWS, columns=names):
            yield from batch.to_pylist()


def _with_golds(shown: Sequence[Failed], problems: Path) -> Iterator[Failed]:
    wanted: list[tuple[str, str, Any]] = [("problem_id", "in", [of.problem_id for of in shown])]
    found = columns(problems, ("problem_id", "gold"), wanted)
    golds = dict(zip(found["problem_id"], found["gold"], strict=True))
    for of in shown:
        yield replace(of, gold=plain_gold(golds[of.problem_id]))
