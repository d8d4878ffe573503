"""``gapft gap`` on lm-eval's own tasks gives the decisions that lm-eval itself gives."""

from __future__ import annotations

import json
import math
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from gapft_harness.cli.main import app
from gapft_harness.compare.choice import CompareChoice
from gapft_harness.compare.comparison import compare
from gapft_harness.core.errors import UserError
from tests.gap.results import read_items, read_rates, read_results, read_states
from tests.gap.stock import (
    DOCUMENTS,
    POLICY,
    STOCK,
    K,
    evaluate_each_response,
    evaluate_texts,
    run_gap,
    write_stock,
    write_task,
)

#: The filters of each task, and its metric.
FILTERS = {
    "gsm8k": ("strict-match", "flexible-extract"),
    "gsm8k_cot": ("strict-match", "flexible-extract"),
    "hendrycks_math_algebra": ("none",),
    "triviaqa": ("remove_whitespace",),
    "bbh_cot_fewshot_boolean_expressions": ("get-answer",),
    "drop": ("none",),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with all tasks, their data and their measurements."""
    folder = tmp_path_factory.mktemp("stock")
    write_stock(folder)
    return folder


@pytest.fixture(scope="module")
def gsm8k(folder: Path) -> Path:
    """The output of ``gapft gap`` on gsm8k."""
    done = run_gap(folder, "gsm8k")
    assert done.exit_code == 0, (done.output, done.exception)
    return folder / "gsm8k"


@pytest.mark.parametrize("task", FILTERS)
def test_decisions_match_lm_eval(folder: Path, task: str) -> None:
    done = run_gap(folder, task)
    assert done.exit_code == 0, (done.output, done.exception)
    expected = evaluate_each_response(folder, task)
    metric = "em" if task == "drop" else "exact_match"
    results = read_results(folder / task)
    rates = read_rates(results)
    assert tuple(rates) == FILTERS[task]
    (search,) = results["search"]
    assert (search["problems"], search["k"], search["metric"]) == (DOCUMENTS, K, metric)
    items = read_items(folder / task)
    assert len(items) == len(expected) == DOCUMENTS * len(FILTERS[task])
    states = set()
    for (name, number), rows in expected.items():
        greedy, *samples = [row[metric] for row in rows]
        item = items[name, number]
        assert (int(item["greedy"]), int(item["passing"])) == (greedy, sum(samples))
        states.add("G" if greedy else "S" if any(samples) else "U")
        assert item["state"] == ("G" if greedy else "S" if any(samples) else "U")
    assert len(states) > 1, "the planted responses tell nothing"
    for name in FILTERS[task]:
        counts = [int(items[name, number]["passing"]) for number in range(DOCUMENTS)]
        for k in range(1, K + 1):
            missed = [math.comb(K - c, k) / math.comb(K, k) for c in counts]
            assert rates[name][f"Pass@{k}"]["rate"] == pytest.approx(1 - sum(missed) / DOCUMENTS)
        assert rates[name][f"Pass@{K}"]["gain"] == pytest.approx(
            rates[name][f"Pass@{K}"]["rate"] - rates[name]["Pass@1"]["rate"]
        )
        check_majority(
            results, name, [rows[1:] for key, rows in expected.items() if key[0] == name]
        )
    # the greedy log equals lm-eval's log of these responses
    logged = {(row["filter"], row["doc_id"]): row for row in read_log(folder / task, "greedy")}
    for key, (row, *_) in expected.items():
        assert logged[key]["filtered_resps"] == row["filtered_resps"]
        for same in ("doc", "doc_hash", metric):
            assert logged[key][same] == json.loads(json.dumps(row[same])), same
        assert logged[key]["target"] == str(row["target"])
        assert logged[key]["resps"] == row["resps"]


def test_compare_reads_the_logs(gsm8k: Path) -> None:
    place = gsm8k / "gap"
    comparison = compare(
        str(place / "greedy"),
        [str(place / "greedy")],
        CompareChoice(source_samples=[str(place / "samples")]),
    )
    results = read_results(gsm8k)
    assert comparison.findings.states is not None
    states = {state: int((comparison.findings.states == state).sum()) for state in "GSU"}
    assert states == read_states(results)["strict-match"]
    assert comparison.metric.filter == "strict-match"
    assert comparison.higher_is_better is True


def test_uses_chosen_filter(folder: Path, gsm8k: Path) -> None:
    done = run_gap(folder, "gsm8k", "--filter", "flexible-extract", out="flexible")
    assert done.exit_code == 0, (done.output, done.exception)
    results = read_results(folder / "flexible")
    other = read_results(gsm8k)
    assert results["search"][0]["filter"] == "flexible-extract"
    assert read_rates(results) == read_rates(other)
    assert next(iter(read_rates(results))) == "flexible-extract"


def test_rerun_reuses_responses_and_files(folder: Path, gsm8k: Path) -> None:
    requests = (folder / "gsm8k.asked").read_text()
    before = read_files(gsm8k)
    done = run_gap(folder, "gsm8k")
    assert done.exit_code == 0, (done.output, done.exception)
    assert (folder / "gsm8k.asked").read_text() == requests
    assert read_files(gsm8k) == before


def test_rejects_graded_metric_before_generation(folder: Path) -> None:
    done = run_gap(folder, "drop", "--metric", "f1", out="graded")
    assert done.exit_code != 0
    assert "pass_at" in str(done.exception)
    assert not (folder / "graded").exists()


def test_pass_at_sets_threshold_of_graded_metric(folder: Path) -> None:
    done = run_gap(
        folder, "drop", "--metric", "f1", "--set", "verifier.params.pass_at=0.9", out="at"
    )
    assert done.exit_code == 0, (done.output, done.exception)
    items = read_items(folder / "at")
    for (_, number), (greedy, *samples) in evaluate_each_response(folder, "drop").items():
        assert int(items["none", number]["greedy"]) == (greedy["f1"] >= 0.9)
        assert int(items["none", number]["passing"]) == sum(row["f1"] >= 0.9 for row in samples)
    grades = {row["f1"] for row in read_log(folder / "at", "greedy")}
    assert any(0 < grade < 0.9 for grade in grades)
    assert all(row["metrics"][0] == "pass@1" for row in read_log(folder / "at", "greedy"))


def test_reports_unused_repeats_and_votes(folder: Path) -> None:
    task = "gsm8k_cot_self_consistency"
    refused = run_gap(folder, task)
    assert "search.temperature" in str(refused.exception)
    done = run_gap(folder, task, "--set", "search.temperature=0.2")
    assert done.exit_code == 0, (done.output, done.exception)
    results = read_results(folder / task)
    assert list(read_rates(results)) == ["score-first"]
    notes = " ".join(row["note"] for row in results["notes"])
    assert "own repeats (64) are not used" in notes
    assert "maj@64" in notes
    assert "maj@8" in notes
    assert (folder / f"{task}.asked").read_text().count("True 0.2") == DOCUMENTS
    voted = run_gap(
        folder, task, "--filter", "maj@8", "--set", "search.temperature=0.2", out="voted"
    )
    assert "maj@8" in str(voted.exception)


def test_repeats_of_logs_give_same_states(folder: Path, gsm8k: Path) -> None:
    """The log's number is that of the first response; the task's metric judges the others."""
    stock, numbers_of = STOCK["gsm8k"], {"test": range(DOCUMENTS), "train": range(100, 120)}
    splits = {split: map(stock.document, numbers) for split, numbers in numbers_of.items()}
    write_task(folder / "tasks", "repeated", stock.file, splits, repeats=K)
    greedy, samples = folder / "repeats" / "greedy", folder / "repeats" / "samples"
    evaluate_texts(folder, "gsm8k", 0, out=greedy)
    rows = evaluate_texts(folder, "gsm8k", 1, "repeated", samples)
    assert {len(responses) for row in rows for responses in row["resps"]} == {K}
    with pytest.raises(UserError, match="say how many of them passed"):
        compare(str(greedy), [str(greedy)], CompareChoice(source_samples=[str(samples)]))
    for name in FILTERS["gsm8k"]:
        run = folder / f"logs-{name}"
        responses = {
            "audit": [str(next(samples.rglob("samples_*.jsonl")))],
            "greedy": {"audit": str(next(greedy.rglob("samples_*.jsonl")))},
            "judge": True,
            "filter": name,
        }
        done = CliRunner().invoke(
            app,
            [
                "gap", "gsm8k", "--out", str(run), "--k", str(K), "--filter", name,
                "--include-path", str(folder / "tasks"), "--model-args", f"pretrained={POLICY}",
                "--plugin", str(folder / "canned.py"), "--set", "executor.name=here",
                "--set", f"search.responses={json.dumps(responses)}",
            ],
        )  # fmt: skip
        assert done.exit_code == 0, (done.output, done.exception)
        states = {
            row["problem_id"]: row["state"]
            for row in pq.read_table(run / "states/audit.parquet").to_pylist()
        }
        ours = read_items(gsm8k)
        assert len(states) == DOCUMENTS
        for (of_filter, _), row in ours.items():
            if of_filter == name:
                assert states[row["problem_id"]] == row["state"]


def check_majority(results: dict[str, Any], name: str, rows: list[list[dict[str, Any]]]) -> None:
    """Check maj@K, with votes for the texts that lm_eval's filter extracts from K samples."""
    majority = read_rates(results)[name].get(f"maj@{K}")
    if name not in ("strict-match", "flexible-extract", "get-answer"):
        assert majority is None, "the filter returns the complete response"
        reason = f"maj@K is not shown (filter {name}): no answer was extracted"
        assert any(row["note"].startswith(reason) for row in results["notes"])
        return
    outcomes = []
    for samples in rows:
        texts = [str(row["filtered_resps"][0]).strip("[]'") for row in samples]
        votes = Counter(text for text in texts if text != "invalid")
        leaders = [text for text, count in votes.items() if count == max(votes.values())]
        right = {text: row["exact_match"] for text, row in zip(texts, samples, strict=True)}
        outcomes.append(sum(right[text] for text in leaders) / len(leaders) if leaders else 0.0)
    assert majority["rate"] == pytest.approx(sum(outcomes) / len(outcomes))
    assert majority["rate_low"] <= majority["rate"] <= majority["rate_high"]


def read_log(folder: Path, kind: str) -> list[dict[str, Any]]:
    """Read the rows of a log."""
    (log,) = (folder / "gap" / kind).glob("samples_*.jsonl")
    return [json.loads(line) for line in log.read_text().splitlines()]


def read_files(folder: Path) -> dict[str, bytes]:
    """Read every file that ``gap`` writes."""
    files = sorted(path for path in (folder / "gap").rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


def test_covers_every_stock_task() -> None:
    assert set(STOCK) == {*FILTERS, "gsm8k_cot_self_consistency"}
