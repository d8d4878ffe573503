"""The search stage reads all data before it searches, and records each finished split."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from transformers import GenerationConfig

from gapft_harness.core.errors import GapftError, UserError
from gapft_harness.core.records import Arm
from gapft_harness.engine import runner
from gapft_harness.engine.outputs import Output
from gapft_harness.hooks.manager import load_plugins
from gapft_harness.hooks.protocols import Job, Progress
from gapft_harness.run_directory.directory import RunDirectory
from gapft_harness.run_directory.recorded import list_warnings
from gapft_harness.stages.decode import build_decoder, decode
from gapft_harness.stages.search.data import check_splits, hash_problems
from gapft_harness.stages.search.stage import (
    build_search_step,
    run_search_stage,
    search_split,
)
from tests.kit.command import gapft, succeed
from tests.kit.letters import CONTAINS, prepare_letters_run, write_letters
from tests.kit.recording_run import InProcessExecutor, LettersTask, write_letters_task


@pytest.fixture
def task(tmp_path: Path) -> LettersTask:
    return write_letters_task(tmp_path, pool=5, audit=4)


class ReportsDone(InProcessExecutor):
    """Reports every search as done, like a machine whose disk is not shared."""

    def run(self, jobs: Sequence[Job], progress: Progress) -> list[dict[str, Any]]:
        return [
            {order["place"]: {} for order in job.arguments["orders"]}
            if "orders" in job.arguments
            else super(ReportsDone, self).run([job], progress)[0]
            for job in jobs
        ]


@pytest.mark.thorough
def test_reads_the_audit_before_searching_the_pool(tmp_path: Path) -> None:
    write_letters(tmp_path, {"pool": 5, "audit": 4})
    (tmp_path / "contains.py").write_text(CONTAINS)
    (tmp_path / "recipe.yaml").write_text(
        "name: r\ndata: {task: letters}\n"
        "model: {backend: dummy, args: {pretrained: none}}\nexecutor: {workers: 1}\n"
    )
    audit = tmp_path / "tasks" / "audit.jsonl"
    good = audit.read_text()
    records = [json.loads(line) for line in good.splitlines()]
    audit.write_text("".join(json.dumps({**r, "answer": ""}) + "\n" for r in records))
    arguments = ("run", "recipe.yaml", "--run-dir", "run", "--only", "search")
    options = ("--plugin", "contains.py", "--include-path", "tasks")
    refused = gapft(*arguments, *options, cwd=tmp_path)
    assert refused.returncode == 2
    assert "audit.jsonl, line 1: " in refused.stderr
    assert "Traceback" not in refused.stderr
    assert not (tmp_path / "run").exists(), "nothing was generated"
    audit.write_text(good)
    succeed(*arguments, *options, cwd=tmp_path)


@pytest.mark.thorough
def test_records_that_the_models_penalty_is_ignored(tmp_path: Path) -> None:
    """Qwen2.5-Instruct has such a file. Also responses from the store get the warning."""
    arguments = prepare_letters_run(tmp_path)
    GenerationConfig(repetition_penalty=1.05, eos_token_id=2).save_pretrained(tmp_path / "model")
    expected = f"{tmp_path / 'model'}: ignored repetition_penalty=1.05 of its generation_config: "
    done = succeed(*arguments, "first", "--only", "search", cwd=tmp_path)
    assert expected in " ".join((done.stdout + done.stderr).split())
    succeed(*arguments, "second", "--only", "search", cwd=tmp_path)
    for name in ("first", "second"):
        warnings = list_warnings(RunDirectory.open(tmp_path / name))
        (warning,) = [line for line in warnings if "generation_config" in line]
        assert warning.startswith(expected)
        assert "lm_eval --model hf apply the penalty" in warning


def test_torn_pool_stops_the_audit(task: LettersTask) -> None:
    run = task.run("r")
    pool = task.folder / "tasks" / "pool.jsonl"
    whole = pool.read_text()
    pool.write_text("torn")
    with pytest.raises(UserError, match=r"pool\.jsonl, line 1"):
        run_search_stage(task.context(run))
    pool.write_text(whole)
    run_search_stage(task.context(run))
    assert run.has("audit/responses.parquet")


def test_missing_tables_are_an_error(task: LettersTask, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "_VISIBLE_TIMEOUT_S", 0.0)
    run = task.run("r", splits=())
    with pytest.raises(GapftError, match=r"was made, but .* not visible"):
        run_search_stage(replace(task.context(run), executor=ReportsDone()))


def test_reports_a_job_before_loading_its_model(task: LettersTask) -> None:
    """The display can then show what it is waiting for."""
    run = task.run("r")
    arm, folders = Arm("gapft", 13), [str(task.folder / "tasks")]
    problems = Output(run.file("pool/problems.parquet"))
    seen: list[tuple[int, int, int]] = []

    def count_loads() -> int:
        return sum("settings" in line for line in task.log("r"))

    def record_progress(done: int, total: int, tokens: int = 0, note: str = "") -> None:
        seen.append((done, total, count_loads() - before))

    before = count_loads()
    plugins, task_facts = load_plugins(task.plugins), run.task
    builder = build_decoder(run.recipe, task_facts, {}, run.path, plugins, task.plugins)
    splits, _ = check_splits(run.recipe, plugins, folders)
    hashes = hash_problems(splits["audit"].problems)
    step = build_search_step(builder, "audit", hashes, folders)
    arguments = {**step.settings, **step.operational}
    search_split(task.folder / "searched", **arguments, progress=record_progress)
    assert seen[:2] == [(0, 0, 0), (0, 4 * (1 + 8), 1)]
    adapter = task.folder / "adapter"
    adapter.mkdir()
    (adapter / "adapter_config.json").write_text("{}")
    before, seen[:] = count_loads(), []
    step = builder.build("decisions/gapft-seed13.parquet", arm, "pool", problems, Output(adapter))
    decode(
        task.folder / "decoded.parquet",
        problems.path,
        adapter,
        **{**step.settings, **step.operational},
        progress=record_progress,
    )
    assert seen[:2] == [(0, 0, 0), (0, 5, 1)]
