"""What ``gapft verify`` reports besides damage: unfinished work, timeouts, other versions."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from safetensors.torch import load_file, save_file

from gapft_harness.core.errors import UserError
from gapft_harness.core.weights import weights_hash
from gapft_harness.hooks.manager import load_plugins
from gapft_harness.stages.verify.run import verify
from gapft_harness.version import __version__
from tests.kit.command import call
from tests.kit.records import change_records, change_run, read_records, record_again
from tests.kit.runs import BaseRun, RunAt
from tests.kit.tampering import (
    change_facts,
    change_json,
    forge_record_key,
    read_rows,
    write_rows,
)

ARM, OTHER_ARM = "gapft-seed13", "uniform-seed13"
DECISIONS = f"decisions/{ARM}.parquet"

#: The verifier reads answers too: a response's first letter.
ANSWERING = """

Contains.answer = lambda self, text: text[:1] or None
"""


@pytest.fixture
def run(run_at: RunAt) -> BaseRun:
    return run_at("reported")


def edit_plugin(run: BaseRun, tmp_path: Path, edit: Callable[[str], str]) -> list[str]:
    """Write an edited plugin, and remove the hashes of the plugin from the run's inputs."""
    plugin = tmp_path / "plugin.py"
    plugin.write_text(edit(Path(run.plugins[0]).read_text()))
    code = load_plugins([str(plugin)]).get("verifier", "contains").code_hash
    for name, record in read_records(run.path).items():
        if "verifier" in record["made_from"]["code"]:
            forge_record_key(run.path, name, ("code", "verifier"), code)
    return [str(plugin)]


def relabel_failed_decision(run: Path, status: str) -> str:
    """Change a failed decision's status; update the recorded counts.

    Returns:
        The problem's id.
    """
    rows = read_rows(run / DECISIONS)
    row = next(row for row in rows if row["status"] == "fail")
    row["status"] = status
    counts = dict(sorted(Counter(row["status"] for row in rows).items()))
    write_rows(run / DECISIONS, rows)
    change_records(run, lambda records: records[DECISIONS]["facts"].update(verdicts=counts))
    record_again(run, DECISIONS)
    return str(row["problem_id"])


def test_reads_answers_again(run: BaseRun, tmp_path: Path) -> None:
    plugin = edit_plugin(run, tmp_path, lambda text: text + ANSWERING)
    assert any("has the answer None" in line for line in verify(run.path, plugin).differences)


def test_reports_timeout_without_difference(run: BaseRun) -> None:
    """Timeouts depend on the speed of the machine."""
    late = relabel_failed_decision(run.path, "timeout")
    report = verify(run.path, run.plugins)
    assert report.differences == []
    assert any(late in line for line in report.checked)


def test_skips_verdicts_without_rejudging(run: BaseRun, tmp_path: Path) -> None:
    registered = 'register("contains", Contains'
    plugin = edit_plugin(
        run, tmp_path, lambda text: text.replace(registered, f"{registered}, rejudge=False")
    )
    relabel_failed_decision(run.path, "timeout")
    (edited,) = verify(run.path, plugin).differences
    assert "drawn-seed13.parquet: code.selector is " in edited  # the file also has the selector
    relabel_failed_decision(run.path, "pass")
    assert not any("judged again" in line for line in verify(run.path, plugin).differences)


def test_failing_verifier_is_user_error(run: BaseRun, tmp_path: Path) -> None:
    """For example, its data are missing. Other differences are still reported."""
    away = "\n\ndef away():\n    raise RuntimeError('no data here')\n\n\nContains = away\n"
    plugin = edit_plugin(run, tmp_path, lambda text: text + away)
    with pytest.raises(UserError, match="no data here"):
        verify(run.path, plugin)
    (run.path / "states/audit.parquet").write_bytes(b"")
    differences = verify(run.path, plugin).differences
    assert any(line.startswith("states/audit.parquet: ") for line in differences)
    assert any("no data here" in line for line in differences)


def test_lists_missing_parts_of_unfinished_run(run_at: RunAt) -> None:
    run = run_at("selected")
    report = verify(run.path, run.plugins)
    assert report.differences == []
    assert f"adapters/{ARM} is not made" in report.missing


def test_lost_adapter_of_decisions_is_named(run: BaseRun) -> None:
    shutil.rmtree(run.path / f"adapters/{ARM}")
    change_records(run.path, lambda records: records.pop(f"adapters/{ARM}"))
    assert any(f"adapters/{ARM}" in line for line in run.find_differences())


def test_run_without_its_records_is_one_error(run: BaseRun) -> None:
    """The same command makes them again, with the outputs that the store has."""
    records = run.path / "run.json"
    before = read_records(run.path)
    for content in ("{", "[]", ""):
        records.unlink()
        if content:
            records.write_text(content)
        done = call("verify", run.path)
        assert done.returncode == 2
        assert "run.json" in done.stderr
        assert "Traceback" not in done.stderr
    assert run.resume("--include-path", run.folder / "tasks").returncode == 0
    after = read_records(run.path)
    assert {name: after[name]["digest"] for name in after} == {
        name: before[name]["digest"] for name in after
    }
    assert run.find_differences() == []


def test_ignores_unfinished_files(run: BaseRun) -> None:
    for relative in ("adapters/.x.checkpoint", "selections/.x.partial"):
        (run.path / relative).parent.mkdir(exist_ok=True)
        (run.path / relative).write_text("{}")
    assert run.find_differences() == []


def test_attention_may_be_unknown(run: BaseRun) -> None:
    """Earlier versions did not record it; two kinds in one run are a difference."""
    change_facts(run.path, ARM, lambda facts: facts.pop("attention"))
    assert not any("differ in attention" in line for line in run.find_differences())
    other = {"implementation": "gapft_segments", "kernel": "varlen_attn"}
    change_facts(run.path, ARM, lambda facts: facts.update(attention=other))
    assert any("differ in attention" in line for line in run.find_differences())


def test_version_of_package_is_a_remark(run: BaseRun) -> None:
    change_run(run.path, lambda facts: facts["versions"].update({"gapft-harness": "0.0.9"}))
    assert run.find_differences() == []
    (run.path / f"selections/{ARM}.parquet").unlink()
    report = verify(run.path, run.plugins)
    assert report.differences
    assert "0.0.9" in report.remark
    assert __version__ in report.remark


def test_weights_changed_everywhere_contradict_decisions(run: BaseRun) -> None:
    """The folders and the records have the exchanged weights consistently."""
    folders = [run.path / f"adapters/{arm}" for arm in (ARM, OTHER_ARM)]
    tensors = [load_file(folder / "adapter_model.safetensors") for folder in folders]
    for folder, other in zip(folders, reversed(tensors), strict=True):
        (folder / "adapter_model.safetensors").unlink()
        save_file(other, folder / "adapter_model.safetensors", metadata={"format": "pt"})
        digest = weights_hash(folder)
        change_facts(run.path, folder.name, lambda facts, d=digest: facts.update(adapter_sha256=d))
    lines = run.find_differences()
    for arm in (ARM, OTHER_ARM):
        assert any(f"run.json, decisions/{arm}.parquet: inputs.adapter" in line for line in lines)


def test_unfinished_search_is_not_recorded(run_at: RunAt) -> None:
    """A table exists before its split is recorded, and stays if the command is killed."""
    run = run_at("searched")
    change_run(run.path, lambda content: content.update(outputs={}))
    report = verify(run.path, run.plugins)
    assert any(line.startswith("pool/problems.parquet: ") for line in report.differences)
    assert "the pool is not searched" in report.missing


@pytest.mark.parametrize("key", ["r", "lora_alpha", "use_rslora", "target_modules"])
def test_edited_adapter_config_is_named(run: BaseRun, key: str) -> None:
    """The arm's decisions were made with another one."""
    path = run.path / f"adapters/{ARM}/adapter_config.json"
    change_json(path, lambda config: config.update({key: ["x"] if "modules" in key else 7}))
    record_again(run.path, f"adapters/{ARM}")
    lines = run.find_differences()
    assert any(f"run.json, decisions/{ARM}.parquet: inputs.adapter" in line for line in lines)
    assert any(line.startswith(f"adapters/{ARM}/adapter_config.json: {key}") for line in lines)
