"""Logs of Inspect, read by Inspect itself. ``make test-inspect`` installs it."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from gapft_harness.core.errors import UserError
from gapft_harness.run_directory.tables import read_judged
from tests.kit.recording_run import LettersTask, write_letters_task
from tests.recorded.made import Line, build_lines, get_states, search_logs, write_lines

VERDICTS = [[1, 0, 1], [0, 0, 1], [0, 0, 0]]
STATES = {"pool0": "G", "pool1": "S", "pool2": "U"}


@pytest.fixture
def task(tmp_path: Path) -> LettersTask:
    return write_letters_task(tmp_path, pool=3, audit=3)


def test_missing_inspect_package_names_install_command(
    task: LettersTask, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "inspect_ai.log", None)
    log = write_lines(task.folder / "log.eval", ["PK"])
    with pytest.raises(UserError, match=r"log.eval: .* pip install 'gapft-harness\[inspect\]'"):
        search_logs(task, model, "run", [], greedy=log)


def write_log(path: Path, lines: list[Line]) -> str:
    """Write responses as a log of Inspect: one sample each, with the index as the epoch."""
    from inspect_ai import log
    from inspect_ai.model import ModelOutput
    from inspect_ai.scorer import Score

    prompts = list(dict.fromkeys(line["prompt"] for line in lines))
    epochs = len(lines) // len(prompts)
    samples = [
        log.EvalSample(
            id=prompts.index(line["prompt"]),
            epoch=1 if line["index"] == "greedy" else line["index"] + 1,
            input=line["prompt"],
            target="",
            output=ModelOutput.from_content("planted", line["text"], stop_reason="unknown"),
            scores={"exact": Score(value="C" if line["passed"] else "I")},
        )
        for line in lines
    ]
    spec = log.EvalSpec(
        created="2026-01-01T00:00:00+00:00",
        task="letters",
        dataset=log.EvalDataset(samples=len(prompts), sample_ids=[*range(len(prompts))]),
        model="planted",
        config=log.EvalConfig(epochs=epochs),
    )
    counts = {"total_samples": len(samples), "completed_samples": len(samples)}
    whole = log.EvalLog(
        status="success", eval=spec, results=log.EvalResults(**counts), samples=samples
    )
    log.write_eval_log(whole, str(path))
    return str(path)


def test_imports_inspect_logs(task: LettersTask, model: Path) -> None:
    """Damaged or repeated logs and unknown scores are rejected."""
    log = pytest.importorskip("inspect_ai.log")
    lines = build_lines(VERDICTS)
    first = search_logs(task, model, "first", [write_lines(task.folder / "r.jsonl", lines)])
    greedy, samples = (
        write_log(
            task.folder / f"{name}.eval",
            [line for line in lines if (line["index"] == "greedy") == (name == "greedy")],
        )
        for name in ("greedy", "samples")
    )
    run = search_logs(task, model, "run", [samples], greedy=greedy)
    assert get_states(run) == STATES
    assert [*read_judged(run.path / "pool/responses.parquet")] == [
        *read_judged(first.path / "pool/responses.parquet")
    ]
    assert run.manifest()["imported"]["pool"]["verdict_field"] == "exact under filter none"
    with pytest.raises(UserError, match=r"the greedy response of problem .* again"):
        search_logs(task, model, "other", [greedy], greedy=samples)
    with pytest.raises(UserError, match="no metric 'f1'; "):
        search_logs(task, model, "other", [samples], greedy=greedy, metric="f1")
    content = Path(samples).read_bytes()
    Path(samples).write_bytes(content[: len(content) // 2])
    with pytest.raises(UserError, match="Inspect cannot read the file as a complete log"):
        search_logs(task, model, "other", [samples], greedy=greedy)
    edited = log.read_eval_log(greedy)
    edited.samples[0].scores["exact"].value = "P"
    log.write_eval_log(edited, greedy)
    with pytest.raises(UserError, match=r"exact is 0\.5; expected a verdict"):
        search_logs(task, model, "other", [], greedy=greedy)
