"""``--source-samples``: no sample is counted twice, and none that was not drawn."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from gapft_harness.compare.choice import CompareChoice
from gapft_harness.compare.comparison import compare
from gapft_harness.core.errors import UserError
from gapft_harness.verdicts.table import Verdicts
from tests.compare.logs import row, write


@pytest.fixture
def before(tmp_path: Path) -> Path:
    return write(tmp_path / "before", [0, 1, 0, 1])


def samples(before: Path, *logs: object, **choice: Any) -> Verdicts:
    """Of the logs, for a comparison with a model that has all right."""
    after = write(before.parents[1] / "after", [1] * 4)
    named = [str(log) for log in logs]
    found = compare(
        str(before), [str(after)], CompareChoice(source_samples=named, **choice)
    ).samples
    assert found is not None
    return found


def refused(before: Path, *logs: object, **choice: Any) -> str:
    with pytest.raises(UserError) as caught:
        samples(before, *logs, **choice)
    return str(caught.value)


def verdicts(passing: int, of: int) -> list[dict[str, str]]:
    return [{"status": "pass" if i < passing else "fail"} for i in range(of)]


def test_a_log_counts_once(before: Path, tmp_path: Path) -> None:
    one, other = (write(tmp_path / name, [int(name == "k1")] * 4) for name in ("k1", "k2"))
    assert samples(before, one, other).k == 2
    assert "identical logs" in refused(before, one, one)
    assert "identical logs" in refused(before, one, one.parent)
    (tmp_path / "copy").mkdir()
    copy = shutil.copy(one, tmp_path / "copy" / one.name)
    assert f"{one} and {copy}: identical logs" in refused(before, one, other, copy)


def test_the_decode_before_is_no_sample(before: Path, tmp_path: Path) -> None:
    assert f"{before} and {before}: identical logs" in refused(before, before)
    folder = tmp_path / "both"
    greedy = write(folder, rows=[row(i, 0, verdicts=verdicts(0, 1)) for i in range(4)])
    passk = write(
        folder, rows=[row(i, 0, verdicts=verdicts(i, 8)) for i in range(4)], task="toy_passk"
    )
    told = refused(before, folder, tasks=["toy"])
    assert f"{greedy}, line 1 and {passk}, line 1: the same document in logs of two tasks" in told
    assert samples(before, passk).k == 8
    assert sorted(samples(before, passk).passing.tolist()) == [0, 1, 2, 3]


def test_several_answers_of_one_document_in_before_may_be_its_samples(tmp_path: Path) -> None:
    """A majority is compared, and the answers that voted are the samples."""
    rows = [row(i, i % 2, verdicts=verdicts(1 + i, 8)) for i in range(4)]
    before = write(tmp_path / "before", rows=rows)
    assert samples(before, before).k == 8


def test_logs_of_other_documents_play_no_part(before: Path, tmp_path: Path) -> None:
    folder = tmp_path / "samples"
    write(folder, rows=[row(i, 0, verdicts=verdicts(i, 8)) for i in range(4)], task="toy_passk")
    write(folder, rows=[row(i, 0.5) for i in range(50, 53)], task="another")
    assert samples(before, folder).k == 8


def test_several_answers_and_one_number_do_not_tell_how_many_passed(
    before: Path, tmp_path: Path
) -> None:
    majority = write(tmp_path / "maj", rows=[row(i, 1, resps=[["a"] * 8]) for i in range(4)])
    told = refused(before, majority)
    assert f"{majority}, line 1: 8 responses, and exact_match does not say how many" in told
    assert "samples need verdicts" in told


def test_of_several_filters_the_compared_one_is_taken(before: Path, tmp_path: Path) -> None:
    def log(name: str, filters: dict[str, float]) -> Path:
        rows = [
            row(i, 0, filter=of, resps=[["x", "y"]], **{"pass@1": rate})
            for of, rate in filters.items()
            for i in range(4)
        ]
        return write(tmp_path / name, rows=rows)

    both = samples(before, log("both", {"strict": 0.3, "none": 0.5}))
    assert (both.k, both.passing.tolist()) == (2, [1] * 4)
    assert samples(before, log("another", {"strict": 0.5})).k == 2  # the log has no other
    told = refused(before, log("neither", {"strict": 0.5, "loose": 0.5}))
    assert "no row of these documents under filter 'none'; known: loose, strict" in told
    single = write(tmp_path / "single", rows=[row(i, 1, filter="strict") for i in range(4)])
    assert "under filter 'none'; known: strict" in refused(before, single)


def test_states_need_a_metric_that_says_right_or_wrong(tmp_path: Path) -> None:
    before = write(tmp_path / "errors", [0, 1, 0, 1], higher=False)
    after = write(tmp_path / "after", [1] * 4, higher=False)
    with pytest.raises(UserError, match="found the metric exact_match; expected one of 0 or 1"):
        compare(str(before), [str(after)], CompareChoice(source_samples=[str(after)]))
