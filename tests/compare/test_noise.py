"""``--again`` measures the noise of two runs of one model; ``--noise`` compares changes with it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from gapft_harness.analysis.noise import RunNoise
from gapft_harness.compare.noise import NOISE_FILE
from tests.compare.logs import DATE, row, write_log
from tests.compare.test_gate import read_refusal, run_compare

#: A model that is right on 100 of 200 documents.
RIGHT = [1] * 100 + [0] * 100


def flip(values: list[Any], *positions: int) -> list[Any]:
    return [1 - value if n in positions else value for n, value in enumerate(values)]


def write_model_log(folder: Path, values: list[Any], model: str = "base", **config: Any) -> Path:
    """Write a log whose results file names the model."""
    config = {"model_args": f"pretrained={model}", "gen_kwargs": None, **config}
    return write_log(folder, values, facts={"model_name": model, "config": config})


def measure(tmp_path: Path, first: Path, second: Path) -> Path:
    folder = tmp_path / "noise"
    done = run_compare("--again", first, second, "--out", folder)
    assert done.exit_code == 0, (done.output, done.exception)
    return folder / NOISE_FILE


def read_checks(*arguments: object) -> list[dict[str, Any]]:
    done = run_compare(*arguments, "--format", "json")
    assert done.exit_code == 0, (done.output, done.exception)
    checks: list[dict[str, Any]] = json.loads(done.stdout)["noise"]
    return checks


def test_change_is_compared_with_noise(tmp_path: Path) -> None:
    first = write_model_log(tmp_path / "a1", RIGHT)
    second = write_model_log(tmp_path / "a2", flip(RIGHT, 0, 1, 2, 100, 101))
    noise = measure(tmp_path, first, second)
    (entry,) = json.loads(noise.read_text())["noise"]
    assert (entry["task"], entry["metric"], entry["n"], entry["changed"]) == (
        "toy", "exact_match", 200, 5,
    )  # fmt: skip
    limit = RunNoise(200, 5, 1.0).compute_limit(200)
    assert entry["limit"] == limit
    lost = round(limit * 200)
    small = write_model_log(tmp_path / "small", flip(RIGHT, *range(lost - 1)), "tuned")
    large = write_model_log(tmp_path / "large", flip(RIGHT, *range(lost + 1)), "tuned")
    checks = read_checks(first, f"small={small}", f"large={large}", "--noise", noise)
    assert [(check["model"], check["exceeds"]) for check in checks] == [
        ("small", False), ("large", True),
    ]  # fmt: skip
    assert [check["limit"] for check in checks] == [limit] * 2
    output = run_compare(first, f"large={large}", "--noise", noise).output
    assert "large: the difference exceeds the noise of two runs of one model." in output
    assert "warning" not in output


def test_equal_runs_have_noise_of_few_documents(tmp_path: Path) -> None:
    """No document of 200 changed: up to 1.8% may, so that a loss of 2 is not a change."""
    first, second = (write_model_log(tmp_path / name, RIGHT) for name in ("a1", "a2"))
    noise = measure(tmp_path, first, second)
    for lost, exceeds in ((2, False), (8, True)):
        after = write_model_log(tmp_path / f"lost{lost}", flip(RIGHT, *range(lost)), "tuned")
        (check,) = read_checks(first, after, "--noise", noise)
        assert check["exceeds"] == exceeds


def test_noise_has_unit_of_metric(tmp_path: Path) -> None:
    scale = 50.0
    values = [n % 7 / 2 for n in range(200)]
    for name, factor in (("share", 1.0), ("scaled", scale)):
        logs = []
        for side, shift in (("a1", 0.0), ("a2", 0.25), ("after", 0.5)):
            changed = [v + shift * (1 if n % 2 else -1) * (n < 40) for n, v in enumerate(values)]
            logs.append(write_log(tmp_path / name / side, [factor * v for v in changed]))
        measure(tmp_path / name, *logs[:2])
    first, second = (
        json.loads((tmp_path / name / "noise" / NOISE_FILE).read_text())["noise"][0]
        for name in ("share", "scaled")
    )
    assert second["limit"] == pytest.approx(scale * first["limit"])
    assert not first["is_share"]


def test_tasks_have_their_own_noise(tmp_path: Path) -> None:
    for side, positions in (("a1", ()), ("a2", (0, 150)), ("after", range(60))):
        write_log(tmp_path / side, RIGHT, task="still")
        write_log(tmp_path / side, flip(RIGHT, *positions), task="noisy")
    noise = measure(tmp_path, tmp_path / "a1", tmp_path / "a2")
    entries = json.loads(noise.read_text())["noise"]
    assert [(entry["task"], entry["changed"]) for entry in entries] == [("noisy", 2), ("still", 0)]
    arguments = (tmp_path / "a1", tmp_path / "after", "--noise", noise)
    assert [check["exceeds"] for check in read_checks(*arguments)] == [True, False]
    assert "1 of 2 differences exceed the noise" in run_compare(*arguments).output
    assert len(read_checks(*arguments, "--task", "still")) == 1
    only = measure(tmp_path / "one", tmp_path / "a1" / f"samples_still_{DATE}.jsonl", *[
        tmp_path / "a2" / f"samples_still_{DATE}.jsonl"
    ])  # fmt: skip
    error = read_refusal(tmp_path / "a1", tmp_path / "after", "--noise", only)
    assert "no noise of task 'noisy'; known: still" in error


def test_reports_runs_with_different_means(tmp_path: Path) -> None:
    first = write_model_log(tmp_path / "a1", RIGHT)
    second = write_model_log(tmp_path / "a2", flip(RIGHT, *range(20)))
    done = run_compare("--again", first, second, "--out", tmp_path / "out")
    assert "The means of the two runs differ by more than noise" in done.output
    other = write_model_log(tmp_path / "a3", flip(RIGHT, *range(10), *range(100, 110)))
    done = run_compare("--again", first, other, "--out", tmp_path / "out", "--overwrite")
    assert "differ by more than noise" not in done.output


def test_reports_noise_of_different_model(tmp_path: Path) -> None:
    logs = [write_model_log(tmp_path / name, RIGHT, "other") for name in ("a1", "a2")]
    noise = measure(tmp_path, *logs)
    before, after = (write_model_log(tmp_path / name, RIGHT, name) for name in ("b", "c"))
    assert "The noise is of a different model" in run_compare(
        before, after, "--noise", noise
    ).output  # fmt: skip
    assert "different model" not in run_compare(logs[0], after, "--noise", noise).output


@pytest.mark.parametrize(
    ("changes", "fact"),
    [
        ({"model": "tuned"}, "model name"),
        ({"model_sha": "b"}, "model sha"),
        ({"model_num_parameters": 2}, "model num parameters"),
        ({"gen_kwargs": {"temperature": 1}}, "generation settings"),
    ],
)
def test_again_rejects_different_models(tmp_path: Path, changes: dict[str, Any], fact: str) -> None:
    known = {"model_sha": "a", "model_num_parameters": 1}
    first = write_model_log(tmp_path / "a1", RIGHT, **known)
    second = write_model_log(tmp_path / "a2", RIGHT, **known | changes)
    error = read_refusal("--again", first, second, "--out", tmp_path / "out")
    assert f"expected two runs of one model, but the {fact} differs" in error
    assert not (tmp_path / "out").exists()


def test_again_rejects_wrong_arguments(tmp_path: Path) -> None:
    first, second, third = (write_model_log(tmp_path / name, RIGHT) for name in "abc")
    assert "given twice" in read_refusal("--again", first, first)
    assert "found 3 logs" in read_refusal("--again", first, second, third)
    assert "--again" in read_refusal("--again", first, second, "--fail-if-worse", 0.1)
    noise = measure(tmp_path, first, second)
    assert "--again" in read_refusal("--again", first, second, "--noise", noise)
    error = read_refusal("--again", first, second, "--out", noise.parent)
    assert "already has" in error
    other = write_log(tmp_path / "other", RIGHT, task="other")
    assert "expected the same tasks" in read_refusal("--again", first, other)


def test_unknown_models_are_reported(tmp_path: Path) -> None:
    logs = [write_log(tmp_path / name, RIGHT) for name in "ab"]
    done = run_compare("--again", *logs, "--out", tmp_path / "out")
    assert "The logs do not show whether they are of one model." in done.output


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("", "noise.json"),
        ("[]", "noise.json"),
        ("{}", "that gapft compare --again writes"),
        ('{"schema": 1, "noise": [{}]}', "damaged entry"),
        ('{"schema": 1, "noise": [3]}', "damaged entry"),
        (
            '{"schema": 1, "noise": [{"task": "toy", "metric": "exact_match", "filter": "none", '
            '"n": 3, "changed": 4, "mean_square": 1, "is_share": true}]}',
            "damaged entry",
        ),
    ],
)
def test_rejects_damaged_noise_file(tmp_path: Path, content: str, expected: str) -> None:
    log = write_log(tmp_path / "a", RIGHT)
    (tmp_path / "noise.json").write_text(content)
    assert expected in read_refusal(log, log, "--noise", tmp_path / "noise.json")
    assert "none.json" in read_refusal(log, log, "--noise", tmp_path / "none.json")


def test_rejects_noise_of_different_metric(tmp_path: Path) -> None:
    rows = [row(n, value, metrics=["exact_match", "f1"], f1=0.5) for n, value in enumerate(RIGHT)]
    logs = [write_log(tmp_path / name, rows=rows) for name in "ab"]
    noise = measure(tmp_path, *logs)
    error = read_refusal(*logs, "--noise", noise, "--metric", "f1")
    assert "the noise is of exact_match" in error
    assert "choose with --metric" in error
