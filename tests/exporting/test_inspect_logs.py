"""Logs of Inspect, read back by its own reader. ``make test-inspect`` installs it."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

import pytest

from gapft_harness.core.errors import UserError
from gapft_harness.core.records import Arm
from gapft_harness.exporting.inspect_logs import _Decoded, _require_names, _scorer
from gapft_harness.exporting.kinds import Asked, export
from gapft_harness.interactive.runs import Run
from gapft_harness.run_directory import layout
from gapft_harness.run_directory.directory import RunDirectory
from tests.verify.tampering import change_manifest


def test_without_the_package_it_is_said_how_to_have_it(
    planted: RunDirectory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "inspect_ai.log", None)
    with pytest.raises(UserError, match=r"pip install 'gapft-harness\[inspect\]'"):
        export(planted, "inspect", Asked(tmp_path / "out"))
    assert not (tmp_path / "out").exists()


def test_logs_say_what_is_sealed(planted: RunDirectory, tmp_path: Path) -> None:
    log = pytest.importorskip("inspect_ai.log")
    files = export(planted, "inspect", Asked(tmp_path / "out", ["gapft", "uniform"], [13]))
    names = ["pool-source", "pool-source-samples", "audit-source", "audit-source-samples"]
    arms = ["audit-gapft-seed13", "audit-uniform-seed13"]
    assert [file.stem for file in files] == [*names, *arms]
    tables, results = Run(planted), json.loads((planted.path / "report/results.json").read_text())
    gold = {row["problem_id"]: row["gold"] for row in tables.problems.to_pylist()}
    state = {row["problem_id"]: row["state"] for row in tables.states.to_pylist()}
    responses = tables.read("responses", split="audit").to_pylist()
    decided = {
        name: [row for row in tables.decisions.to_pylist() if row["condition"] == name
               and row["training_seed"] == 13]
        for name in ("gapft", "uniform")
    }  # fmt: skip
    expected = {
        "audit-source": [row for row in responses if row["index"] == -1],
        "audit-source-samples": [row for row in responses if row["index"] >= 0],
        **{f"audit-{name}-seed13": rows for name, rows in decided.items()},
    }
    for name, rows in expected.items():
        read = log.read_eval_log(str(tmp_path / "out" / f"{name}.eval"))
        rows.sort(key=lambda row: (row["index"], row["problem_id"]))  # as Inspect reads them
        assert read.status == "success"
        assert read.eval.config.epochs == (4 if "samples" in name else 1)
        assert [(one.id, one.epoch, one.output.completion) for one in read.samples] == [
            (row["problem_id"], max(row["index"], 0) + 1, row["text"]) for row in rows
        ]
        for one, row in zip(read.samples, rows, strict=True):
            (score,) = one.scores.values()
            assert (score.value == "C") is (row["status"] == "pass")
            assert score.metadata == {"verdict": row["status"]}
            assert one.target == json.loads(gold[one.id])
            assert one.metadata == {"state": state[one.id]}
            assert one.messages[-1].text == row["text"]
    assert len({log.read_eval_log(str(file)).eval.eval_id for file in files}) == len(files)
    for condition in decided:
        read = log.read_eval_log(str(tmp_path / "out" / f"audit-{condition}-seed13.eval"))
        accuracy = read.results.scores[0].metrics["accuracy"].value
        assert accuracy == results["conditions"][condition]["seeds"]["13"]["pass_at_1"]


def test_mistakes_and_an_edited_run_are_refused(planted: RunDirectory, tmp_path: Path) -> None:
    pytest.importorskip("inspect_ai.log")
    out = tmp_path / "out"
    with pytest.raises(UserError, match=r"--seed 7: .* has no such audited model; has "):
        export(planted, "inspect", Asked(out, seeds=[7]))
    shutil.copytree(planted.path, tmp_path / "run")
    edited = RunDirectory.open(tmp_path / "run")
    path = edited.path / layout.states("audit")
    path.write_bytes(path.read_bytes() + b" ")
    with pytest.raises(UserError, match=r"audit/states.parquet: was changed after it was sealed"):
        export(edited, "inspect", Asked(out))
    assert not out.exists()


def test_two_decodes_never_share_a_file() -> None:
    """The condition ``gapft`` on the audit ``b``, and ``b-gapft`` on the run's own."""
    arms = {Arm("gapft", 13, "b"): "audit/b", Arm("b-gapft", 13): "audit"}
    name = "audit-b-gapft-seed13"
    decodes = [_Decoded(name, split, layout.decisions(arm)) for arm, split in arms.items()]
    with pytest.raises(UserError, match=r"gapft-seed13@b.parquet and .* both be audit-b-gapft"):
        _require_names(decodes)
    _require_names(decodes[:1])


def test_the_scorer_of_imported_verdicts_is_no_verifier(
    planted: RunDirectory, tmp_path: Path
) -> None:
    run = RunDirectory(Path(shutil.copytree(planted.path, tmp_path / "run")), planted.recipe)
    verifier = run.manifest()["task"]["verifier"]
    source = _Decoded("audit-source", "audit", layout.responses("audit"))
    arm = Arm("gapft", 13)
    trained = _Decoded("audit-gapft-seed13", "audit", layout.decisions(arm), arm=arm)
    assert _scorer(run, source)[0] == verifier
    for verdicts, scorer in (("file", "imported verdict"), ("judged", verifier)):
        imported = {"audit": {"verdicts": verdicts}}
        change_manifest(run.path, lambda m, told=imported: m.update(imported=told))
        assert _scorer(run, source)[0] == scorer
        assert _scorer(run, trained)[0] == verifier, "this run judged them"
