"""Logs like those of public reports: what they hide is told, and what they break is joined."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from gapft_harness.compare.comparison import Comparison
from gapft_harness.compare.notes import list_warnings
from gapft_harness.core.errors import UserError
from gapft_harness.outcomes.logs import find_runs
from tests.compare import logs
from tests.compare.logs import join_notes, read_means, read_results, row, write_log

CONFIG = {"model": "hf", "model_args": {"pretrained": "X"}}


def compare_logs(before: Path, after: Path, **choice: Any) -> Comparison:
    return logs.compare_logs(before, f"new={after}", **choice)


def find_warnings(comparison: Comparison, text: str) -> list[str]:
    return [warning for warning in list_warnings(comparison) if text in warning]


def write_filters(folder: Path, strict: list[int], flexible: list[int]) -> Path:
    rows = [
        row(number, value, filter=name)
        for name, values in (("strict", strict), ("flexible", flexible))
        for number, value in enumerate(values)
    ]
    return write_log(folder, rows=rows)


def test_warns_if_filters_disagree(tmp_path: Path) -> None:
    """The strict filter reads more answers after; the flexible one finds fewer right ones."""
    before = write_filters(tmp_path / "b", [0, 0, 0, 1], [1, 1, 1, 0])
    after = write_filters(tmp_path / "a", [0, 1, 0, 1], [1, 1, 0, 0])
    for chosen, other, means in (
        ("strict", "flexible", "from 0.75 to 0.5"),
        ("flexible", "strict", "from 0.25 to 0.5"),
    ):
        (warning,) = find_warnings(compare_logs(before, after, filter=chosen), "other direction")
        assert f"under filter {other}: {means}" in warning
    better = write_filters(tmp_path / "c", [0, 1, 0, 1], [1, 1, 1, 1])
    assert not find_warnings(compare_logs(before, better), "other direction")


def write_shard(folder: Path, numbers: range, date: str, **facts: Any) -> Path:
    rows = [row(number, number % 2) for number in numbers]
    mean = sum(number % 2 for number in numbers) / len(numbers)
    return write_log(
        folder, rows=rows, date=f"2026-01-0{date}T00-00-00.1", results={"exact_match,none": mean},
        facts={"config": CONFIG, **facts},
    )  # fmt: skip


def test_joins_shards_of_one_evaluation(tmp_path: Path) -> None:
    whole = write_shard(tmp_path / "whole", range(11), "1").parent
    for date, numbers in (("1", range(4)), ("2", range(4, 11))):
        write_shard(tmp_path / "shards", numbers, date)
    comparison = compare_logs(whole, tmp_path / "shards")
    assert read_means(comparison) == (5 / 11, 5 / 11)
    assert "2 logs of toy with equal settings" in join_notes(comparison)
    sharded = compare_logs(tmp_path / "shards", whole)
    assert len(sharded.joined.items) == 11
    assert "groups" not in read_results(sharded), "there is one task"


def test_matched_files_of_a_folder_are_one_run(tmp_path: Path) -> None:
    """Also if files of a folder in it come between them."""
    write_log(tmp_path / "samples_b", [0, 1], task="inner")
    for task in ("a", "c"):
        write_log(tmp_path, [0, 1], task=task)
    runs = find_runs(f"{tmp_path}/**/samples_*.jsonl")
    assert [sorted(log.task for log in run.logs) for run in runs] == [["inner"], ["a", "c"]]


@pytest.mark.parametrize("second", ["overlapping", "other settings", "other version"])
def test_refuses_two_logs_that_are_not_shards(second: str, tmp_path: Path) -> None:
    write_shard(tmp_path / "logs", range(4), "1")
    facts: dict[str, Any] = {
        "other settings": {"config": {**CONFIG, "gen_kwargs": "temperature=1"}},
        "other version": {"versions": {"toy": 2}},
    }.get(second, {})
    write_shard(tmp_path / "logs", range(2 if second == "overlapping" else 4, 8), "2", **facts)
    with pytest.raises(UserError, match=r"two logs of task toy.*--latest"):
        compare_logs(tmp_path / "logs", tmp_path / "logs")
    latest = compare_logs(tmp_path / "logs", tmp_path / "logs", latest=True)
    assert set(latest.before.lines) == set(range(1, len(latest.joined.items) + 1))


def test_pairs_a_renamed_task(tmp_path: Path) -> None:
    before = write_log(tmp_path / "b", [0, 1], results={"exact_match,none": 0.5}).parent
    write_log(tmp_path / "a", [1, 1], task="toy_my", results={"exact_match,none": 1.0})
    with pytest.raises(UserError, match="--task BEFORE=AFTER"):
        compare_logs(before, tmp_path / "a")
    comparison = compare_logs(before, tmp_path / "a", tasks=["toy=toy_my"])
    assert (read_means(comparison), [*comparison.metrics]) == ((0.5, 1.0), ["toy"])
    with pytest.raises(UserError, match="nope"):
        compare_logs(before, tmp_path / "a", tasks=["toy=nope"])


def write_options(folder: Path, order: int, **facts: Any) -> Path:
    rows = [
        row(number, number % 2, doc={"question": f"q{number}", "choices": [order, 1 - order]})
        for number in range(6)
    ]
    return write_log(folder, rows=rows, facts=facts)


def test_reshuffled_options_are_joined_by_question(tmp_path: Path) -> None:
    before = write_options(tmp_path / "b", 0, config=CONFIG, lm_eval_version="0.4.13")
    settings = {**CONFIG, "model_args": {"pretrained": "Y", "add_bos_token": True}}
    after = write_options(tmp_path / "a", 1, config=settings, lm_eval_version="0.4.9")
    with pytest.raises(UserError, match="joined on others: --on FIELD"):
        compare_logs(before, after)
    comparison = compare_logs(before, after, on=["question"])
    (warning,) = find_warnings(comparison, "other settings")
    assert "add_bos_token not set → True, lm_eval 0.4.13 → 0.4.9" in warning
    assert "pretrained" not in warning


def test_warns_if_scores_of_equal_responses_differ(tmp_path: Path) -> None:
    def write(name: str, values: list[int], **changes: Any) -> Path:
        rows = [row(n, v, resps=[[f"said {n % 3}"]], **changes) for n, v in enumerate(values)]
        return write_log(tmp_path / name, rows=rows)

    before = write("b", [0, 1, 0, 1])
    (warning,) = find_warnings(compare_logs(before, write("a", [1, 1, 1, 1])), "scoring changed")
    assert warning.startswith("new: 2 responses")
    other_golds = write("c", [1, 1, 1, 1], target="another")
    assert not find_warnings(compare_logs(before, other_golds), "scoring changed")
    assert json.loads(before.read_text().splitlines()[0])["resps"] == [["said 0"]]


def test_warns_about_self_comparison(tmp_path: Path) -> None:
    before = write_log(tmp_path / "a", [0, 1] * 20)
    copied = write_log(tmp_path / "b", [0, 1] * 20)
    for after, warning in (
        (before, "BEFORE compared with itself"),
        (tmp_path / "a", "BEFORE compared with itself"),
        (copied, "identical log"),
    ):
        (first, *_) = find_warnings(compare_logs(before, after), "")
        assert warning in first
    assert not find_warnings(compare_logs(before, write_log(tmp_path / "c", [1, 1] * 20)), "")


def test_warns_about_changed_prompts_and_golds(tmp_path: Path) -> None:
    before = write_log(tmp_path / "a", [0, 1, 1])
    rows = [row(i, 1, arguments={"gen_args_0": {"arg_0": f"few-shot {i}"}}) for i in range(3)]
    rows[2]["target"] = "another"
    comparison = compare_logs(before, write_log(tmp_path / "b", rows=rows))
    assert find_warnings(comparison, "different prompt than before for 3 of 3")
    assert find_warnings(comparison, "different gold answer than before for 1 of 3")
