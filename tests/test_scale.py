"""Adapter scaling through the stages, with planted losses at every scale."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from gapft_harness.analysis.scaling import SCALES, compute_upper_bound
from gapft_harness.core.errors import UserError
from gapft_harness.core.records import Arm
from gapft_harness.run_directory import layout
from gapft_harness.run_directory.directory import RunDirectory
from gapft_harness.stages.verify.run import verify
from gapft_harness.study.driver import run_study
from gapft_harness.study.recipe import read_study
from gapft_harness.study.verify import verify_study
from tests.kit.plugins import ANSWERING, build_plugin
from tests.kit.recording_run import LettersTask, write_letters_task
from tests.kit.report_tables import read_results

STAGES = ("states", "select", "train", "audit", "experiments", "report")
SPLITS = ("pool", "audit", "calibration")
CALIBRATION = 90

#: The share of solved problems that each arm loses at the paper's scales, and its chosen scale.
LOSSES = {
    "gapft-seed13": ([0, 0, 0, 0], 1.0),
    "gapft-seed21": ([0, 0, 0, 0.5], 0.75),
    "uniform-seed13": ([0, 0.5, 0, 0], 0.25),
    "uniform-seed21": ([0.5, 0.5, 0.5, 0.5], 0.0),
}

#: The trainer writes a lora_B of ones, so the sampler can read the scale from the weights.
PLUGIN = build_plugin(
    f"LOSSES = {LOSSES!r}\n"
    + ANSWERING
    + """
import hashlib
import json
import pathlib

SCALES = [0.25, 0.5, 0.75, 1.0]


def share(*parts):
    return hashlib.sha256(" ".join(parts).encode()).digest()[0] / 256


def solved(problem_id):
    return share(problem_id, "solved") < 0.7


def right(arm, scale, problem_id):
    if arm is None or not scale:
        return solved(problem_id)
    if solved(problem_id):
        return share(problem_id, "lost") >= LOSSES.get(arm, [[0] * 4])[0][SCALES.index(scale)]
    return share(problem_id, "gained") < scale / 2


class ByScale(Answering):
    def __init__(self, settings, adapter):
        super().__init__(settings, adapter)
        self._arm, self._scale, self._adapter = None, None, None
        if adapter is not None:
            from safetensors.torch import load_file

            folder = pathlib.Path(adapter.path)
            weights = load_file(folder / "adapter_model.safetensors")
            assert weights["q.lora_A.weight"].eq(1).all()
            self._arm, self._scale = adapter.arm.name, float(weights["q.lora_B.weight"][0, 0])
            self._adapter = {"arm": self._arm, "weights_sha256": weights_hash(folder)}

    def generate(self, requests, decoding, report):
        with open(self._args["log"], "a") as file:
            ids = [r.problem_id for r in requests]
            file.write(json.dumps([self._arm, self._scale, decoding.do_sample, ids]) + "\\n")
        return super().generate(requests, decoding, report)

    def _write(self, request, index):
        good = index == 1 or right(self._arm, self._scale, request.problem_id)
        return "it is " + request.prompt[-1] if good else "?"

    def describe(self):
        return {"model": "by scale", "adapter": self._adapter}


def train(job):
    import torch
    from safetensors.torch import save_file

    job.output.mkdir(parents=True)
    (job.output / "adapter_config.json").write_text('{"peft_type": "LORA"}')
    ones = {f"{m}.lora_{x}.weight": torch.ones(2, 2) for x in "AB" for m in "qv"}
    ones["v.lora_A.weight"] *= share(job.arm.name)  # no two arms have one adapter
    save_file(ones, job.output / "adapter_model.safetensors")
    return {"seconds": 0.0}
""",
    samplers=['"by_scale", ByScale, operational=["log"]'],
    trainers=['"ones", train'],
)

_SETTINGS: dict[str, Any] = {
    "conditions": ["gapft", "uniform"],
    "seeds": [13, 21],
    "budget": {"n": 4},
    "model": {"backend": "by_scale"},
    "training": {"trainer": "ones", "repetitions": 1},
    "search": {"k": 2, "chunk": 20},
    "statistics": {"replicates": 100},
    "experiments": {
        "scaling": {"calibration": CALIBRATION},
        "scope": {"k": [1, 2], "adapters": "scaled"},
        "stability": {"sets": 2, "k": 2, "adapters": "scaled"},
    },
}


def scale(
    task: LettersTask, name: str, stages: tuple[str, ...] = STAGES, **keys: Any
) -> RunDirectory:
    """Run the recipe with other sections; without stages, only its search."""
    return task.run(name, stages, SPLITS, **{**_SETTINGS, **keys})  # type: ignore[arg-type]


AUDIT = 60


@pytest.fixture(scope="module")
def task(tmp_path_factory: pytest.TempPathFactory) -> LettersTask:
    folder = tmp_path_factory.mktemp("scaled")
    (folder / "by_scale.py").write_text(PLUGIN)
    return write_letters_task(folder, CALIBRATION + 40, AUDIT)


@pytest.fixture(scope="module")
def run(task: LettersTask) -> RunDirectory:
    scaled = scale(task, "scaled")
    assert verify(scaled.path, task.plugins).differences == []
    return scaled


@pytest.fixture(scope="module")
def planted() -> dict[str, Any]:
    names: dict[str, Any] = {}
    exec(PLUGIN, names)
    return names


def read_column(run: RunDirectory, table: str, column: str) -> list[str]:
    values: list[str] = pq.read_table(run.path / f"{table}.parquet")[column].to_pylist()
    return values


def read_ids(run: RunDirectory, split: str) -> list[str]:
    return read_column(run, f"{split}/problems", "problem_id")


def read_choices(run: RunDirectory) -> dict[str, dict[str, Any]]:
    """Read what was found at each scale, by arm."""
    files = sorted(run.path.glob("scaled/*/scaling.json"))
    return {file.parent.name: json.loads(file.read_text()) for file in files}


def test_decodes_calibration_split_only_greedily(task: LettersTask, run: RunDirectory) -> None:
    held = read_ids(run, "calibration")
    assert len(held) == CALIBRATION
    assert set(held).isdisjoint({*read_ids(run, "pool"), *read_ids(run, "audit")})
    assert len(read_ids(run, "pool")) == 40
    responses = pq.read_table(run.path / "calibration/responses.parquet").to_pylist()
    assert [(r["problem_id"], r["index"]) for r in responses] == [(i, -1) for i in held]
    sampled = {i for arm, _, do_sample, indices in task.log("scaled") if do_sample for i in indices}
    assert sampled.isdisjoint(held)
    assert not (run.path / "states/calibration.parquet").exists()


def test_every_arm_chooses_by_the_rule(run: RunDirectory, planted: dict[str, Any]) -> None:
    held = [i for i in read_ids(run, "calibration") if planted["solved"](i)]
    assert len(held) > 46, "else no scale is safe"
    choices = read_choices(run)
    assert choices.keys() == LOSSES.keys()
    for arm, content in choices.items():
        assert content["scale"] == LOSSES[arm][1], arm
        assert content["solved"] == len(held)
        lost = [sum(not planted["right"](arm, s, i) for i in held) for s in SCALES]
        assert [scale_facts["regressed"] for scale_facts in content["scales"]] == lost
        assert [scale_facts["upper_bound"] for scale_facts in content["scales"]] == [
            compute_upper_bound(count, len(held), 0.05 / 4) for count in lost
        ]


def test_reports_choices_and_their_effects(run: RunDirectory, planted: dict[str, Any]) -> None:
    results = read_results(run.path)
    audited = read_ids(run, "audit")
    stated = pq.read_table(run.path / "states/audit.parquet").to_pylist()
    for row in results["scaling"]:
        name = f"{row['condition']}-seed{row['seed']}"
        chosen = LOSSES[name][1]
        assert row["scale"] == chosen
        for when, at in (("before", 1.0), ("after", chosen)):
            for state, rate in (("G", "rho_G"), ("S", "kappa_S"), ("U", "kappa_U")):
                members = [entry["problem_id"] for entry in stated if entry["state"] == state]
                right = sum(planted["right"](name, at, i) for i in members)
                changed = len(members) - right if state == "G" else right
                expected = changed / len(members) if members else None
                assert row[f"{rate}_{when}"] == expected, (name, state, when)
                assert state != "G" or row[f"audit_lost_{when}"] == changed
        for what, at in (("source", 0.0), ("trained", 1.0), ("fixed", 0.75), ("chosen", chosen)):
            right = sum(planted["right"](name, at, i) for i in audited)
            assert row[f"pass_at_1_{what}"] == right / len(audited)
    environments = [row["environment"] for row in results["scaling"]]
    assert environments == ["scaled/gapft"] * 2 + ["scaled/uniform"] * 2
    gapft, uniform = results["scaling_environments"]
    keys = ("scale_0", "scale_0.25", "scale_0.5", "scale_0.75", "scale_1")
    assert [gapft[key] for key in keys] == [0, 0, 0, 1, 1]
    assert [uniform[key] for key in keys] == [1, 1, 0, 0, 0]
    for entry in (gapft, uniform):
        assert (entry["above_before"], entry["above_after"]) == (1, 0)
        members = [row for row in results["scaling"] if row["environment"] == entry["environment"]]
        for what in ("source", "fixed", "trained"):
            gains = [row["pass_at_1_chosen"] - row[f"pass_at_1_{what}"] for row in members]
            mean = entry[f"against_{what}"]
            assert mean == pytest.approx(sum(gains) / 2, abs=1e-12)
            assert entry[f"against_{what}_low"] <= mean <= entry[f"against_{what}_high"]
    assert len(results["scaling_bounds"]) == 4 * len(SCALES)
    assert "## Adapter scaling" in (run.path / "report/index.md").read_text("utf-8")


def run_scaled_study(folder: Path, **cells: RunDirectory) -> dict[str, Any]:
    """Run a study of existing runs; return the content of its results.json."""
    study = {
        "name": "scaled",
        "conditions": ["gapft", "uniform"],
        "seeds": [13, 21],
        "cells": {name: {"run": str(cell.path)} for name, cell in cells.items()},
    }
    file = folder.with_suffix(".yaml")
    file.write_text(json.dumps(study))
    run_study(read_study(str(file)), folder, pytest.fail, pytest.fail, print)
    return read_results(folder)


def test_study_pools_scaled_cells(task: LettersTask, run: RunDirectory, tmp_path: Path) -> None:
    other = scale(task, "other", data={"pool_limit": 20})
    study = tmp_path / "study"
    pooled = run_scaled_study(study, A=run, B=other)
    mean, *environments = pooled["scaling_environments"]
    # gapft and uniform have the same budget, so they are one environment
    assert [row["environment"] for row in environments] == ["A/gapft", "B/gapft"]
    assert (mean["environment"], mean["checkpoints"]) == ("mean", 4)
    means = []
    for in_study, cell in zip(environments, (run, other), strict=True):
        own = read_results(cell.path)["scaling_environments"][0]
        assert own["environment"] == f"{cell.recipe.name}/gapft"
        for key in own.keys() - {"environment"}:
            if not key.endswith(("_low", "_high")):  # names decide the random streams
                assert in_study[key] == own[key], key
        means.append(own["against_source"])
    assert mean["against_source"] == pytest.approx(sum(means) / 2)
    assert {row["environment"] for row in pooled["scaling"]} == {"A/gapft", "B/gapft"}
    assert verify_study(study, task.plugins).differences == []
    again = run_scaled_study(tmp_path / "again", B=other, A=run)
    for table in ("scaling_environments", "scaling", "scaling_bounds"):
        assert again[table] == pooled[table]


def test_study_rejects_different_scaling_rules(
    task: LettersTask, run: RunDirectory, tmp_path: Path
) -> None:
    scaling = {"scaling": {"calibration": CALIBRATION, "tolerance": 0.08}}
    strict = scale(task, "strict", (), experiments=scaling)
    with pytest.raises(UserError, match=r"experiments\.scaling\.tolerance 0\.1 → 0\.08"):
        run_scaled_study(tmp_path / "study", A=run, B=strict)


def test_state_experiments_use_scaled_adapters(run: RunDirectory) -> None:
    """As in the paper's older protocol."""
    results = read_results(run.path)
    scales = {name: choice["scale"] for name, choice in read_choices(run).items()}
    assert len(set(scales.values()) - {1.0}) > 1, "some scales differ from 1"
    source = read_column(run, "states/audit", "state").count("G") / AUDIT
    stability = {(row["condition"], row["quantity"]): row for row in results["stability"]}
    differing = 0
    for condition in ("gapft", "uniform"):
        arms = [Arm(condition, seed) for seed in (13, 21)]
        rates = {1.0: {}, 0.0: dict.fromkeys(arms, source)}
        for arm in arms:
            for applied in {1.0, scales[arm.name]} - {0.0}:
                path = run.path / layout.scaled_decisions_path(arm, applied)
                statuses = pq.read_table(path)["status"].to_pylist()
                rates.setdefault(applied, {})[arm] = statuses.count("pass") / AUDIT
        gain = sum(rates[scales[arm.name]][arm] for arm in arms) / 2 - source
        differing += gain != pytest.approx(sum(rates[1.0].values()) / 2 - source)
        lines = [row for row in results["scope"] if row["condition"] == condition]
        assert [row["net_gain"] for row in lines] == [pytest.approx(gain, abs=1e-12)] * 2
        assert {row["adapters"] for row in lines} == {"scaled"}
        moved = stability[condition, "total_gain"]["mean"]
        assert moved == pytest.approx(gain, abs=1e-12)
    assert differing, "the trained models have other decisions"
    assert results["stability_agreement"][0]["adapters"] == "scaled"
