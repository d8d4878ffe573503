"""What a report reads from tables: endings, episodes and gold answers."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from gapft_harness.core.records import GREEDY, SOURCE, STOP_STRING, Arm
from gapft_harness.recipe.reading import check_recipe
from gapft_harness.report.reading.columns import MAX_GOLD_CHARS, format_gold
from gapft_harness.report.reading.endings import read_endings
from gapft_harness.report.reading.episodes import read_episodes
from gapft_harness.report.sections.responses import build_verdicts
from gapft_harness.run_directory.directory import RunDirectory
from gapft_harness.run_directory.tables import response_schema
from tests.kit.records import record_files
from tests.kit.report_tables import build_results, index_rows
from tests.report import planted


def write_endings(path: Path, rows: list[tuple[str, str | None]]) -> Path:
    """Write a table in which the first response is a deployment decode."""
    reasons, answers = zip(*rows, strict=True)
    columns = {
        "index": pa.array(range(-1, len(rows) - 1)),
        "finish_reason": pa.array(reasons),
        "answer": pa.array(answers, pa.string()),
    }
    pq.write_table(pa.table(columns), path)
    return path


def build_endings(tables: dict[str, Path]) -> dict[str, Any]:
    """Read endings, and return their rows in results.json."""
    inputs = planted.build_inputs(sizes=(12, 9, 8), endings=read_endings(tables))
    return index_rows(build_results(inputs)["endings"], "of")


def test_counts_endings_and_missing_answers(tmp_path: Path) -> None:
    rows = [("stop", "4"), ("stop", None), (STOP_STRING, None), ("length", None), ("length", "7")]
    pool = write_endings(tmp_path / "pool", rows)
    audit = write_endings(tmp_path / "audit", [("length", None), ("stop", "4"), ("stop", "4")])
    endings = build_endings({"pool": pool, "audit": audit, SOURCE: audit})
    assert endings["pool"] == {
        "of": "pool", "end_token": 2, "stop_string": 1, "limit": 2, "limit_share": 2 / 5,
        "unknown": 0, "not_generated": 0, "cut_unanswered": 2, "unanswered": 3,
    }  # fmt: skip
    assert endings["audit"]["limit_share"] == 1 / 3
    assert endings[SOURCE]["limit_share"] == 1, "its deployment decodes alone"


def test_no_missing_answers_without_answer_reader(tmp_path: Path) -> None:
    pool = write_endings(tmp_path / "pool", [("stop", None), ("length", None)])
    (row,) = build_endings({"pool": pool}).values()
    assert (row["end_token"], row["limit"]) == (1, 1)
    assert (row["cut_unanswered"], row["unanswered"]) == (None, None)
    section = build_verdicts(planted.build_inputs(endings=read_endings({"pool": pool})))
    titles = [column.title for column in section.tables[-1].titled]
    assert titles[-1] == "not generated", "columns without a value are not shown"
    row = read_endings({"pool": pool}, reads_answers=True)["pool"]
    assert (row["cut_unanswered"], row["unanswered"]) == (1, 2), "the verifier can read answers"


#: (problem, index, attempts before the last, status)
AUDIT = [
    ("a", GREEDY, 0, "pass"), ("a", 0, 2, "fail"), ("a", 1, 1, "pass"),
    ("b", GREEDY, 0, "fail"), ("b", 0, 1, "timeout"), ("b", 1, 2, "pass"),
    ("c", GREEDY, 2, "fail"), ("c", 0, 0, "fail"), ("c", 1, 2, "fail"),
]  # fmt: skip
ARMS = {
    Arm("diffuse", 13): [("a", GREEDY, 0, "pass"), ("b", GREEDY, 1, "pass")],
    Arm("diffuse", 21): [("a", GREEDY, 1, "fail"), ("b", GREEDY, 2, "fail")],
    Arm("replay", 13): [("a", GREEDY, 0, "pass"), ("b", GREEDY, 0, "pass")],
}
SAME = {"times": 3, "episodes": 3, "verdicts_differ": [], "feedback_differs": []}


def write_episodes(path: Path, episodes: list[tuple[str, int, int, str]]) -> None:
    attempt = {"text": "x", "token_ids": [1], "finish_reason": "stop", "feedback": "no"}
    rows = [
        {"problem_id": problem, "index": index, "status": status, "attempts": [attempt] * earlier}
        for problem, index, earlier, status in episodes
    ]
    path.parent.mkdir(exist_ok=True)
    pq.write_table(pa.Table.from_pylist(rows, schema=response_schema()), path)


@pytest.fixture
def run_folder(tmp_path: Path) -> Path:
    write_episodes(tmp_path / "audit/responses.parquet", AUDIT)
    for arm, episodes in ARMS.items():
        write_episodes(tmp_path / f"decisions/{arm.name}.parquet", episodes)
    return tmp_path


def open_episodes(
    folder: Path, attempts: int, executions: int, repeats: Mapping[str, Any] = {}
) -> RunDirectory:
    """Record tables of episodes, with facts on their executions by name."""
    content = {
        "name": "episodes",
        "data": {"task": "t"},
        "model": {"args": {"pretrained": "none"}},
        "conditions": ["diffuse", "replay"],
        "seeds": [13, 21],
    }
    run = RunDirectory(folder, check_recipe(content, "test"))
    (folder / "pool").mkdir()
    names = {"pool": "pool", "audit": "audit"}
    names |= {arm.name: f"decisions/{arm.name}.parquet" for arm in ARMS}
    facts = {
        path: {"executions": repeats[name]} if name in repeats else {}
        for name, path in names.items()
    }
    record_files(run, facts)
    episode = {"attempts": attempts, "executions": executions}
    run.update_facts(lambda recorded: recorded.update(task={"episode": episode}))
    return run


def test_counts_attempts_and_passes_of_public_tests_alone(run_folder: Path) -> None:
    facts = read_episodes(open_episodes(run_folder, 3, 1), list(ARMS))
    assert facts is not None
    ended = [f"ended_at_attempt_{number}" for number in (1, 2, 3)]
    keys = ("who", "kind", *ended, "passed", "passed_public_tests_alone")
    assert [tuple(row[key] for key in keys) for row in facts.rows] == [
        (SOURCE, "greedy", 2, 0, 1, 1, 1),
        (SOURCE, "samples", 1, 2, 3, 2, 2),
        ("diffuse", "greedy", 1, 2, 1, 2, 1),
        ("replay", "greedy", 2, 0, 0, 2, 0),
    ]
    results = build_results(planted.build_inputs(sizes=(12, 9, 8), episodes=facts))
    row = index_rows(results["episodes"], "who", "kind")["diffuse", "greedy"]
    assert (row["attempt_2"], row["passed_share"], row["public_share"]) == (0.5, 0.5, 0.25)
    assert (row["episodes"], row["passed"], row["passed_public_tests_alone"]) == (4, 2, 1)


def test_sums_and_lists_differing_executions(run_folder: Path) -> None:
    pool = {**SAME, "episodes": 9, "verdicts_differ": ["p"], "feedback_differs": ["p", "q"]}
    repeats = {"pool": pool, "audit": SAME, "diffuse-seed13": {**SAME, "feedback_differs": ["b"]}}
    facts = read_episodes(open_episodes(run_folder, 3, 3, repeats), list(ARMS))
    assert facts is not None
    assert [*facts.executions.values()] == [3, 15, 1, 3]
    assert facts.differing == ["diffuse-seed13: b", "pool: p", "pool: q"]
    results = build_results(planted.build_inputs(sizes=(12, 9, 8), episodes=facts))
    assert any("pool: p" in warning for warning in results["warnings"])
    assert results["executions"][0]["verdicts_differ"] == 1


def test_gold_is_text_or_shortened_json_and_hides_hidden_tests() -> None:
    long = "x" * (2 * MAX_GOLD_CHARS)
    assert format_gold(json.dumps(long)) == long
    assert format_gold('{"answer": "B"}') == '{"answer": "B"}'
    packed = json.dumps({"kind": "stdin", "hidden": long})
    assert format_gold(packed) == packed[:MAX_GOLD_CHARS] + "…"
    public, secret = {"input": "1", "output": "2"}, {"input": "770077", "output": "9"}
    gold = {"kind": "stdin", "function": None, "tests": [public, secret], "public": 1}
    assert format_gold(json.dumps(gold)) == (
        f"{json.dumps([public])} as public tests and 1 hidden ones"
    )
    assert "770077" not in format_gold(json.dumps({**gold, "tests": [public], "hidden": "770077"}))
