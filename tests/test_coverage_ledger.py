"""The coverage ledger with the real command: samples, sealed files, verification, report."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
import yaml

from gapft_harness.core.records import SOURCE, Arm
from gapft_harness.experiments.coverage_ledger import (
    LedgerFindings,
    LedgerPart,
    LedgerRead,
    build_ledger_path,
)
from tests.command import gapft, succeed
from tests.report.planted import build_inputs as planted
from tests.training.letters import prepare
from tests.verify.tampering import change_manifest, find_differences, seal_again

ARM = Arm("gapft", 13)
LEDGER = {"k": [1, 3], "references": ["uniform"]}
SEEDS = (13, 21, 73)


@pytest.fixture(scope="module")
def ledger_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a run of two conditions to which the ledger was added later."""
    folder = tmp_path_factory.mktemp("ledger")
    command = [*prepare(folder), "run"]
    path = folder / "recipe.yaml"
    content = yaml.safe_load(path.read_text()) | {"budget": {"n": 6}, "executor": {"workers": 1}}
    content |= {"conditions": ["gapft", "uniform"], "seeds": [13, 21]}
    content["training"] |= {"accumulation": 1, "learning_rate": 0.02}
    path.write_text(yaml.safe_dump(content))
    succeed(*command, cwd=folder)
    shutil.copytree(folder / "run", folder / "before")
    content["experiments"] = {"coverage_ledger": LEDGER}
    path.write_text(yaml.safe_dump(content))
    succeed(*command, cwd=folder)
    return folder


def read_table(run: Path, arm: Arm) -> pa.Table:
    return pq.read_table(run / build_ledger_path(arm))


def count_passes(run: Path, arm: Arm) -> Any:
    passed = pc.equal(read_table(run, arm)["status"], "pass").to_numpy().astype(int)
    return passed.reshape(-1, 3).sum(axis=1)


def read_results(run: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((run / "report/results.json").read_text())
    return content["coverage_ledger"]


def test_ledger_samples_every_adapter_and_the_source(
    ledger_folder: Path,
) -> None:
    files_before, files_after = (
        json.loads((ledger_folder / name / "manifest.json").read_text())["files"]
        for name in ("before", "run")
    )
    arms = [
        Arm(SOURCE, 0),
        *(Arm(condition, seed) for condition in ("gapft", "uniform") for seed in (13, 21)),
    ]
    assert files_before.items() <= files_after.items()
    assert files_after.keys() - files_before.keys() == {build_ledger_path(arm) for arm in arms}
    for arm in arms:
        assert read_table(ledger_folder / "run", arm)["index"].to_pylist() == [0, 1, 2] * 40
    searched = pq.read_table(ledger_folder / "run/audit/responses.parquet")
    first = searched.filter(pc.field("index") >= 0)["text"].to_pylist()
    assert read_table(ledger_folder / "run", arms[0])["text"].to_pylist() != first[:120], (
        "the ledger draws new samples"
    )
    assert find_differences(ledger_folder, ledger_folder / "run") == []


def test_rerun_draws_no_samples(ledger_folder: Path) -> None:
    tables = {path: path.stat().st_mtime_ns for path in (ledger_folder / "run/decisions").iterdir()}
    succeed("run", "run", "--plugin", "plugin.py", cwd=ledger_folder)
    assert {path: path.stat().st_mtime_ns for path in tables} == tables


def test_curves_are_pass_at_k_of_sealed_samples(ledger_folder: Path) -> None:
    run = ledger_folder / "run"
    source = count_passes(run, Arm(SOURCE, 0))
    after = np.stack([count_passes(run, Arm("gapft", seed)) for seed in (13, 21)])
    curve = {
        point["k"]: point
        for point in read_results(run)["curves"]
        if (point["condition"], point["against"], point["state"]) == ("gapft", "source", "")
    }
    for k, right in ((1, lambda c: c / 3), (3, lambda c: (c > 0).astype(float))):
        assert curve[k]["before"] == pytest.approx(right(source).mean())
        assert curve[k]["after"] == pytest.approx(right(after).mean())
        low, high = curve[k]["band95"]
        assert low <= curve[k]["difference"] <= high
    against = {(point["condition"], point["against"]) for point in read_results(run)["curves"]}
    assert against == {("gapft", "source"), ("uniform", "source"), ("gapft", "uniform")}
    page = (run / "report/report.md").read_text("utf-8")
    assert "## Coverage ledger" in page
    assert "With two seeds it is wide." in page


def forge_table(run: Path, arm: Arm, change: Callable[[pa.Table], pa.Table]) -> None:
    path = run / build_ledger_path(arm)
    facts = pq.read_metadata(path).metadata
    pq.write_table(change(pq.read_table(path)).replace_schema_metadata(facts), path)
    seal_again(run, build_ledger_path(arm))


def pass_all(table: pa.Table) -> pa.Table:
    """Turn every verdict into a pass."""
    place = table.schema.get_field_index("status")
    return table.set_column(place, "status", pa.array(["pass"] * len(table)))


@pytest.mark.parametrize(
    ("arm", "change", "message"),
    [
        (ARM, pass_all, "judged again it is fail"),
        (Arm(SOURCE, 0), pass_all, "judged again it is fail"),
        (ARM, lambda table: table.slice(3), "other problems than"),
        (
            ARM,
            lambda table: pa.concat_tables([table.slice(0, 2), table.slice(3)]),
            "has other responses than samples 1 to 2",
        ),
    ],
    ids=["verdicts", "the source's verdicts", "a problem left out", "a sample left out"],
)
def test_verify_detects_forged_samples(
    ledger_folder: Path,
    tmp_path: Path,
    arm: Arm,
    change: Callable[[pa.Table], pa.Table],
    message: str,
) -> None:
    run = tmp_path / "run"
    shutil.copytree(ledger_folder / "run", run)
    forge_table(run, arm, change)
    messages = [
        line for line in find_differences(ledger_folder, run) if build_ledger_path(arm) in line
    ]
    assert any(message in line for line in messages), messages


def test_verify_detects_samples_of_wrong_model(ledger_folder: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    shutil.copytree(ledger_folder / "run", run)
    other = build_ledger_path(Arm("uniform", 21))
    for arm in (ARM, Arm(SOURCE, 0)):
        shutil.copy(run / other, run / build_ledger_path(arm))
        seal_again(run, build_ledger_path(arm))
    messages = find_differences(ledger_folder, run)
    assert f"{build_ledger_path(ARM)}: was decoded with the adapter of uniform-seed21" in messages
    assert any("was decoded with an adapter, but is of the source" in line for line in messages)


def test_verify_lists_missing_samples(ledger_folder: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    shutil.copytree(ledger_folder / "run", run)
    (run / build_ledger_path(ARM)).unlink()
    change_manifest(run, lambda manifest: manifest["files"].pop(build_ledger_path(ARM)))
    done = gapft("verify", run, "--plugin", ledger_folder / "plugin.py", cwd=ledger_folder)
    assert f"{build_ledger_path(ARM)} is not made" in " ".join(done.stdout.split())


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("k=[4, 1]", "must be ascending"),
        ("k=[0, 1]", "greater than 0"),
        ("k=[]", "expected a list, e.g. [1, 4, 16]; found []"),
        ("references=[gaptf]", "'gaptf' is not a condition of the recipe; did you mean 'gapft'?"),
    ],
)
def test_rejects_wrong_settings(ledger_folder: Path, setting: str, message: str) -> None:
    key = f"experiments.coverage_ledger.{setting}"
    done = gapft("run", "demo", "--dry-run", "--set", key, cwd=ledger_folder)
    assert done.returncode == 2
    assert message in " ".join(done.stderr.split())


def test_dry_run_lists_samples(ledger_folder: Path) -> None:
    key = "experiments.coverage_ledger.k=[1, 4]"
    done = succeed("run", "demo", "--dry-run", "--set", key, cwd=ledger_folder)
    line = "ledger: 52,000 = 1,000 x 4 samples x (12 adapters + the source)"
    assert line in " ".join(done.stdout.split())


def simulate_unchanged_model(seed: int, problems: int = 900) -> LedgerFindings:
    """Simulate three training seeds whose samples pass as often as the source's."""
    rng = np.random.default_rng(seed)
    inputs = planted(sizes=(problems // 3,) * 3, conditions=("gapft",), seeds=SEEDS)
    rate = rng.beta(0.6, 0.6, problems)
    own, *others = (rng.binomial(8, rate) for _ in range(4))
    arms = {Arm("gapft", s): passing for s, passing in zip(SEEDS, others, strict=True)}
    return LedgerPart().compute(inputs, LedgerRead((1, 2, 4, 8), (), own, arms))


def test_unchanged_model_has_bands_around_zero() -> None:
    covered = [
        bool((curve.low <= 0).all() and (curve.high >= 0).all())
        for seed in range(20)
        for curve in (entry.curve for entry in simulate_unchanged_model(seed).curves)
        if curve is not None and curve.low is not None and curve.high is not None
    ]
    assert len(covered) == 80
    assert 0.88 <= np.mean(covered) < 1


def test_fresh_samples_show_no_change() -> None:
    """On the samples that decide the states S falls and U rises; on fresh ones neither does."""
    rng = np.random.default_rng(0)
    rate = rng.beta(0.6, 0.6, 4_000)
    search, fresh, after = (rng.binomial(8, rate) for _ in range(3))
    recovered = search > 0
    moved = {
        name: float(((after > 0).astype(int) - (counts > 0))[recovered].mean())
        for name, counts in (("search", search), ("fresh", fresh))
    }
    assert moved["search"] < -0.03
    assert abs(moved["fresh"]) < 0.015


def test_empty_state_has_no_curve() -> None:
    inputs = planted(sizes=(50, 50, 0), conditions=("gapft",), seeds=SEEDS)
    same = np.full(100, 4)
    read = LedgerRead((1, 8), (), same, {Arm("gapft", seed): same for seed in SEEDS})
    findings = LedgerPart().compute(inputs, read)
    assert [entry.state for entry in findings.curves if entry.curve is None] == ["U"]
    assert all(
        (entry.curve.difference == 0).all() and entry.curve.behind is None
        for entry in findings.curves
        if entry.curve
    )
    states = {point["state"] for point in LedgerPart().results(findings)["curves"]}
    assert states == {"", "G", "S"}
