"""``gapft gap`` on lm-eval's own tasks gives the decisions that lm-eval itself gives."""

from __future__ import annotations

import csv
import json
import math
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.gap.stock import (
    DOCUMENTS,
    K,
    evaluate_each_response,
    run_gap,
    write_stock,
)
from tests.kit.planted_run import read_json
from tests.kit.report_tables import index_rows
from tests.presentation.exploring import unpack_page

#: The filters of each task, and its metric.
FILTERS = {
    "gsm8k": ("strict-match", "flexible-extract"),
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
    results = read_json(folder / task / "gap/results.json")
    rates = index_rows(results["curve"], "view", "label")
    assert tuple(dict.fromkeys(view for view, _ in rates)) == FILTERS[task]
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
            label = f"Pass@{k}" if k > 1 else "sampled Pass@1"
            assert rates[name, label]["rate"] == pytest.approx(1 - sum(missed) / DOCUMENTS)
        assert rates[name, f"Pass@{K}"]["gain"] == pytest.approx(
            rates[name, f"Pass@{K}"]["rate"] - rates[name, "sampled Pass@1"]["rate"]
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


def test_explorer_has_every_response_and_verdict(folder: Path, gsm8k: Path) -> None:
    index, contents = unpack_page(gsm8k / "gap" / "explorer.html")
    items, texts = read_items(gsm8k), json.loads((folder / "gsm8k.json").read_text())
    assert len(index["problems"]) == DOCUMENTS
    for entry, content in zip(index["problems"], contents, strict=True):
        number = int(entry["head"][1:].partition("]")[0])
        strict, flexible = (items[name, number] for name in FILTERS["gsm8k"])
        assert entry["id"] == strict["problem_id"]
        assert entry["facts"] == {
            "state": strict["state"],
            "state by flexible-extract": flexible["state"],
            "samples": f"{strict['passing']}/{K}",
        }
        assert content["prompt"].count("Question:") == 6, "with its five examples"
        responses = [*content["responses"], *content["samples"]]
        assert [response["text"] for response in responses] == texts[f"[{number}]"]
        for response in responses:
            is_right = f"#### {2 * number}" in response["text"]
            assert response["verdict"] == ("right" if is_right else "wrong")


def test_no_advice_if_no_response_is_readable(tmp_path: Path) -> None:
    write_stock(tmp_path)
    texts = {f"[{number}]": ["I do not know"] * (K + 1) for number in range(DOCUMENTS)}
    (tmp_path / "gsm8k.json").write_text(json.dumps(texts))
    done = run_gap(tmp_path, "gsm8k")
    assert done.exit_code == 0, (done.output, done.exception)
    results = read_json(tmp_path / "gsm8k/gap/results.json")
    assert results["advice"][0]["answer"] == "no advice"
    assert [row["unanswered"] for row in results["endings"]] == [DOCUMENTS * (K + 1)] * 2


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
    results = read_json(folder / task / "gap/results.json")
    assert {row["view"] for row in results["curve"]} == {"score-first"}
    notes = " ".join(row["note"] for row in results["notes"])
    assert "own repeats (64) are not used" in notes
    assert "maj@64" in notes
    assert "maj@8" in notes
    assert (folder / f"{task}.asked").read_text().count("True 0.2") == DOCUMENTS
    voted = run_gap(
        folder, task, "--filter", "maj@8", "--set", "search.temperature=0.2", out="voted"
    )
    assert "maj@8" in str(voted.exception)


def check_majority(results: dict[str, Any], name: str, rows: list[list[dict[str, Any]]]) -> None:
    """Check maj@K, with votes for the texts that lm_eval's filter extracts from K samples."""
    majority = index_rows(results["curve"], "view", "label").get((name, f"maj@{K}"))
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


def read_items(folder: Path) -> dict[tuple[str, int], dict[str, str]]:
    """Read items.csv by filter and doc_id."""
    with (folder / "gap" / "tables" / "items.csv").open(newline="") as file:
        return {(row["filter"], int(row["doc_id"])): row for row in csv.DictReader(file)}
