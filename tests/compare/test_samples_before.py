"""``--source-samples``: each drawn sample is counted once, and nothing else is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gapft_harness.compare.comparison import Comparison
from gapft_harness.core.errors import UserError
from gapft_harness.outcomes.verdicts import Verdicts
from tests.compare.logs import compare_logs, join_notes, row, write_log


@pytest.fixture
def before(tmp_path: Path) -> Path:
    return write_log(tmp_path / "before", [0, 1, 0, 1])


def read_samples(before: Path, *logs: object, **choice: Any) -> Verdicts:
    """Read the samples of logs, comparing with a model that has all documents right."""
    after = write_log(before.parents[1] / "after", [1] * 4)
    paths = [str(log) for log in logs]
    samples = compare_logs(before, after, source_samples=paths, **choice).samples
    assert samples is not None
    return samples


def build_verdicts(passing: int, count: int) -> list[dict[str, str]]:
    return [{"status": "pass" if i < passing else "fail"} for i in range(count)]


def test_greedy_decode_is_not_a_sample(before: Path, tmp_path: Path) -> None:
    folder = tmp_path / "both"
    greedy = write_log(folder, rows=[row(i, 0, verdicts=build_verdicts(0, 1)) for i in range(4)])
    passk = write_log(
        folder, rows=[row(i, 0, verdicts=build_verdicts(i, 8)) for i in range(4)], task="toy_passk"
    )
    with pytest.raises(UserError) as caught:
        read_samples(before, folder, tasks=["toy"])
    assert str(greedy) in str(caught.value)
    assert str(passk) in str(caught.value)
    assert read_samples(before, passk).k == 8
    assert sorted(read_samples(before, passk).passing.tolist()) == [0, 1, 2, 3]


def test_ignores_unrelated_logs(before: Path, tmp_path: Path) -> None:
    folder = tmp_path / "samples"
    write_log(
        folder, rows=[row(i, 0, verdicts=build_verdicts(i, 8)) for i in range(4)], task="toy_passk"
    )
    write_log(folder, rows=[row(i, 0.5) for i in range(50, 53)], task="another")
    assert read_samples(before, folder).k == 8


def test_reads_samples_of_compared_filter(before: Path, tmp_path: Path) -> None:
    def write_filtered(name: str, filters: dict[str, float]) -> Path:
        rows = [
            row(i, 0, filter=filter_name, resps=[["x", "y"]], **{"pass@1": rate})
            for filter_name, rate in filters.items()
            for i in range(4)
        ]
        return write_log(tmp_path / name, rows=rows)

    both = read_samples(before, write_filtered("both", {"strict": 0.3, "none": 0.5}))
    assert (both.k, both.passing.tolist()) == (2, [1] * 4)
    assert (
        read_samples(before, write_filtered("another", {"strict": 0.5})).k == 2
    )  # the only filter of the log
    single = write_log(tmp_path / "single", rows=[row(i, 1, filter="strict") for i in range(4)])
    with pytest.raises(UserError):
        read_samples(before, single)


def test_reports_and_drops_copied_samples(tmp_path: Path) -> None:
    passing = [0, 1, 1, 1, 2, 3] * 4

    def compare_samples(texts: list[str], **choice: Any) -> Comparison:
        rows = [
            row(i, c / 4, verdicts=build_verdicts(c, 4), resps=[texts])
            for i, c in enumerate(passing)
        ]
        before, after = (write_log(tmp_path / name, [0] * 23 + [1]) for name in ("b", "a"))
        samples = write_log(tmp_path / "samples", rows=rows)
        return compare_logs(before, after, source_samples=[str(samples)], **choice)

    copied = compare_samples(["a", "a", "b", "c"])
    assert "samples 0 and 1 are the same" in join_notes(copied)
    assert copied.samples is not None
    assert copied.samples.k == 4
    cached = compare_samples(["a"] * 4)
    assert "all 4 samples are the same" in join_notes(cached)
    without_copies = compare_samples(["a", "a", "b", "c"], drop_copies=True)
    assert without_copies.samples is not None
    assert without_copies.samples.k == 3
    kept = [c - (c > 1) for c in passing]  # the second of four samples is a copy of the first
    assert sorted(without_copies.samples.passing.tolist()) == sorted(kept)
    assert "1 of 4 are dropped" in join_notes(without_copies)
    distinct = compare_samples(["a", "b", "c", "d"])
    assert "the same" not in join_notes(distinct)
