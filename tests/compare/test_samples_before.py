"""``--source-samples``: each drawn sample is counted once, and nothing else is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gapft_harness.compare.comparison import Comparison
from gapft_harness.core.errors import UserError
from tests.compare.logs import compare_logs, join_notes, row, write_log


def build_verdicts(passing: int, count: int) -> list[dict[str, str]]:
    return [{"status": "pass" if i < passing else "fail"} for i in range(count)]


def test_greedy_decode_is_not_a_sample(tmp_path: Path) -> None:
    before, after = write_log(tmp_path / "b", [0, 1, 0, 1]), write_log(tmp_path / "a", [1] * 4)
    rows = {k: [row(i, 0, verdicts=build_verdicts(i, k)) for i in range(4)] for k in (1, 8)}
    greedy = write_log(tmp_path / "both", rows=rows[1])
    passk = write_log(tmp_path / "both", rows=rows[8], task="toy_passk")
    with pytest.raises(UserError) as caught:
        compare_logs(before, after, source_samples=[str(tmp_path / "both")], tasks=["toy"])
    assert str(greedy) in str(caught.value)
    assert str(passk) in str(caught.value)
    samples = compare_logs(before, after, source_samples=[str(passk)]).samples
    assert samples is not None
    assert (samples.k, sorted(samples.passing.tolist())) == (8, [0, 1, 2, 3])


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
