"""The coverage ledger, by the real command: what is sampled, sealed, verified and told."""

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
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a run of two conditions, finished before the ledger was asked for."""
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


def table(run: Path, arm: Arm) -> pa.Table:
    return pq.read_table(run / build_ledger_path(arm))


def counts(run: Path, arm: Arm) -> Any:
    passed = pc.equal(table(run, arm)["status"], "pass").to_numpy().astype(int)
    return passed.reshape(-1, 3).sum(axis=1)


def results(run: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((run / "report/results.json").read_text())
    return found["coverage_ledger"]


def test_a_finished_run_gets_samples_of_every_adapter_and_fresh_ones_of_the_source(
    made: Path,
) -> None:
    before, now = (
        json.loads((made / name / "manifest.json").read_text())["files"]
        for name in ("before", "run")
    )
    arms = [Arm(SOURCE, 0), *(Arm(of, seed) for of in ("gapft", "uniform") for seed in (13, 21))]
    assert before.items() <= now.items()
    assert now.keys() - before.keys() == {build_ledger_path(arm) for arm in arms}
    for arm in arms:
        assert table(made / "run", arm)["index"].to_pylist() == [0, 1, 2] * 40
    searched = pq.read_table(made / "run/audit/responses.parquet")
    first = searched.filter(pc.field("index") >= 0)["text"].to_pylist()
    assert table(made / "run", arms[0])["text"].to_pylist() != first[:120], "it draws anew"
    assert find_differences(made, made / "run") == []


def test_nothing_is_drawn_twice(made: Path) -> None:
    tables = {path: path.stat().st_mtime_ns for path in (made / "run/decisions").iterdir()}
    succeed("run", "run", "--plugin", "plugin.py", cwd=made)
    assert {path: path.stat().st_mtime_ns for path in tables} == tables


def test_what_it_tells_is_pass_at_k_of_the_sealed_samples(made: Path) -> None:
    run = made / "run"
    source = counts(run, Arm(SOURCE, 0))
    after = np.stack([counts(run, Arm("gapft", seed)) for seed in (13, 21)])
    curve = {
        of["k"]: of
        for of in results(run)["curves"]
        if (of["condition"], of["against"], of["state"]) == ("gapft", "source", "")
    }
    for k, right in ((1, lambda c: c / 3), (3, lambda c: (c > 0).astype(float))):
        assert curve[k]["before"] == pytest.approx(right(source).mean())
        assert curve[k]["after"] == pytest.approx(right(after).mean())
        low, high = curve[k]["band95"]
        assert low <= curve[k]["difference"] <= high
    against = {(of["condition"], of["against"]) for of in results(run)["curves"]}
    assert against == {("gapft", "source"), ("uniform", "source"), ("gapft", "uniform")}
    page = (run / "report/report.md").read_text("utf-8")
    assert "## Coverage ledger" in page
    assert "With two seeds it is wide." in page


def forge(run: Path, arm: Arm, change: Callable[[pa.Table], pa.Table]) -> None:
    path = run / build_ledger_path(arm)
    facts = pq.read_metadata(path).metadata
    pq.write_table(change(pq.read_table(path)).replace_schema_metadata(facts), path)
    seal_again(run, build_ledger_path(arm))


def turned(given: pa.Table) -> pa.Table:
    """Every verdict that is no pass made one."""
    place = given.schema.get_field_index("status")
    return given.set_column(place, "status", pa.array(["pass"] * len(given)))


@pytest.mark.parametrize(
    ("arm", "change", "said"),
    [
        (ARM, turned, "judged again it is fail"),
        (Arm(SOURCE, 0), turned, "judged again it is fail"),
        (ARM, lambda given: given.slice(3), "other problems than"),
        (
            ARM,
            lambda given: pa.concat_tables([given.slice(0, 2), given.slice(3)]),
            "has other responses than samples 1 to 2",
        ),
    ],
    ids=["verdicts", "the source's verdicts", "a problem left out", "a sample left out"],
)
def test_verify_finds_what_is_forged(
    made: Path, tmp_path: Path, arm: Arm, change: Callable[[pa.Table], pa.Table], said: str
) -> None:
    run = tmp_path / "run"
    shutil.copytree(made / "run", run)
    forge(run, arm, change)
    found = [line for line in find_differences(made, run) if build_ledger_path(arm) in line]
    assert any(said in line for line in found), found


def test_verify_finds_samples_of_another_model(made: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    shutil.copytree(made / "run", run)
    other = build_ledger_path(Arm("uniform", 21))
    for arm in (ARM, Arm(SOURCE, 0)):
        shutil.copy(run / other, run / build_ledger_path(arm))
        seal_again(run, build_ledger_path(arm))
    said = find_differences(made, run)
    assert f"{build_ledger_path(ARM)}: was decoded with the adapter of uniform-seed21" in said
    assert any("was decoded with an adapter, but is of the source" in line for line in said)


def test_verify_says_what_is_missing(made: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    shutil.copytree(made / "run", run)
    (run / build_ledger_path(ARM)).unlink()
    change_manifest(run, lambda manifest: manifest["files"].pop(build_ledger_path(ARM)))
    done = gapft("verify", run, "--plugin", made / "plugin.py", cwd=made)
    assert f"{build_ledger_path(ARM)} is not made" in " ".join(done.stdout.split())


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        ("k=[4, 1]", "must be ascending"),
        ("k=[0, 1]", "greater than 0"),
        ("k=[]", "expected a list, e.g. [1, 4, 16]; found []"),
        ("references=[gaptf]", "'gaptf' is not a condition of the recipe; did you mean 'gapft'?"),
    ],
)
def test_a_mistake_in_its_settings_ends_the_command(made: Path, setting: str, said: str) -> None:
    key = f"experiments.coverage_ledger.{setting}"
    done = gapft("run", "demo", "--dry-run", "--set", key, cwd=made)
    assert done.returncode == 2
    assert said in " ".join(done.stderr.split())


def test_the_dry_run_says_what_it_draws(made: Path) -> None:
    key = "experiments.coverage_ledger.k=[1, 4]"
    done = succeed("run", "demo", "--dry-run", "--set", key, cwd=made)
    said = "ledger: 52,000 = 1,000 x 4 samples x (12 adapters + the source)"
    assert said in " ".join(done.stdout.split())


def unchanged(seed: int, problems: int = 900) -> LedgerFindings:
    """Three training seeds whose samples pass as often as the source's do."""
    rng = np.random.default_rng(seed)
    of = planted(sizes=(problems // 3,) * 3, conditions=("gapft",), seeds=SEEDS)
    rate = rng.beta(0.6, 0.6, problems)
    own, *others = (rng.binomial(8, rate) for _ in range(4))
    arms = {Arm("gapft", s): passing for s, passing in zip(SEEDS, others, strict=True)}
    return LedgerPart().compute(of, LedgerRead((1, 2, 4, 8), (), own, arms))


def test_an_unchanged_model_is_held_at_zero_on_every_state() -> None:
    held = [
        bool((curve.low <= 0).all() and (curve.high >= 0).all())
        for seed in range(20)
        for curve in (of.curve for of in unchanged(seed).curves)
        if curve is not None and curve.low is not None and curve.high is not None
    ]
    assert len(held) == 80
    assert 0.88 <= np.mean(held) < 1


def test_states_of_the_searchs_samples_do_not_move_an_unchanged_model() -> None:
    """Measured on the samples that decide the states, S falls and U rises; on fresh ones not."""
    rng = np.random.default_rng(0)
    rate = rng.beta(0.6, 0.6, 4_000)
    search, fresh, after = (rng.binomial(8, rate) for _ in range(3))
    recovered = search > 0
    moved = {
        name: float(((after > 0).astype(int) - (of > 0))[recovered].mean())
        for name, of in (("search", search), ("fresh", fresh))
    }
    assert moved["search"] < -0.03
    assert abs(moved["fresh"]) < 0.015


def test_a_state_without_problems_has_no_curve() -> None:
    of = planted(sizes=(50, 50, 0), conditions=("gapft",), seeds=SEEDS)
    same = np.full(100, 4)
    read = LedgerRead((1, 8), (), same, {Arm("gapft", seed): same for seed in SEEDS})
    found = LedgerPart().compute(of, read)
    assert [of.state for of in found.curves if of.curve is None] == ["U"]
    assert all(
        (of.curve.difference == 0).all() and of.curve.behind is None
        for of in found.curves
        if of.curve
    )
    states = {of["state"] for of in LedgerPart().results(found)["curves"]}
    assert states == {"", "G", "S"}
