"""Adapter scaling through the stages, with planted losses at every scale."""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from gapft_harness.analysis.scaling import SCALES, compute_upper_bound
from gapft_harness.core.errors import GapftError, UserError
from gapft_harness.core.files import sha256
from gapft_harness.core.records import Arm
from gapft_harness.experiments.scaling.job import build_calibration_path
from gapft_harness.run_directory import layout
from gapft_harness.run_directory.directory import RunDirectory
from gapft_harness.stages.experiment import find_experiments
from gapft_harness.stages.pipeline import list_stages, run_stages
from gapft_harness.stages.train.job import train_arms
from gapft_harness.stages.verify.run import verify
from gapft_harness.study.driver import run_study
from gapft_harness.study.recipe import read_study
from gapft_harness.study.verify import verify_study
from tests.kit.recording_run import LettersTask, write_letters_task
from tests.kit.tampering import seal_again

STAGES = ("states", "select", "train", "audit", "experiments", "report")
SPLITS = ("pool", "audit", "calibration")
CALIBRATION, AUDIT = 90, 60

#: The share of solved problems that each arm loses at the paper's scales, and its chosen scale.
LOSSES = {
    "gapft-seed13": ([0, 0, 0, 0], 1.0),
    "gapft-seed21": ([0, 0, 0, 0.5], 0.75),
    "uniform-seed13": ([0, 0.5, 0, 0], 0.25),
    "uniform-seed21": ([0.5, 0.5, 0.5, 0.5], 0.0),
}

#: The trainer writes a lora_B of ones, so the sampler can read the scale from the weights.
#: The file ``fuse`` beside the log, if present, holds the number of calls before a failure.
PLUGIN = (
    f"LOSSES = {LOSSES!r}\n"
    + """
import hashlib
import json
import pathlib

from gapft_harness.api import Generated, Generation, hookimpl

SCALES = [0.25, 0.5, 0.75, 1.0]


def share(*parts):
    return hashlib.sha256(" ".join(parts).encode()).digest()[0] / 256


def solved(problem_id):
    return share(problem_id, "solved") < 0.7


def right(arm, scale, problem_id):
    if arm is None or not scale:
        return solved(problem_id)
    if solved(problem_id):
        return share(problem_id, "lost") >= LOSSES[arm][0][SCALES.index(scale)]
    return share(problem_id, "gained") < scale / 2


class ByScale:
    def __init__(self, settings, adapter):
        self._args = settings.model_args
        self._arm, self._scale, self._adapter = None, None, None
        if adapter is not None:
            from safetensors.torch import load_file
            from gapft_harness.api import weights_hash

            folder = pathlib.Path(adapter.path)
            weights = load_file(folder / "adapter_model.safetensors")
            assert weights["q.lora_A.weight"].eq(1).all()
            self._arm, self._scale = adapter.arm.name, float(weights["q.lora_B.weight"][0, 0])
            self._adapter = {"arm": self._arm, "weights_sha256": weights_hash(folder)}

    def generate(self, requests, decoding, report):
        fuse = pathlib.Path(self._args["log"]).with_name("fuse")
        if fuse.exists():
            left = int(fuse.read_text())
            if not left:
                raise RuntimeError("the fuse blew")
            fuse.write_text(str(left - 1))
        with open(self._args["log"], "a") as file:
            ids = [r.problem_id for r in requests]
            file.write(json.dumps([self._arm, self._scale, decoding.do_sample, ids]) + "\\n")
        return [
            Generated(
                tuple(r.prompt.encode()), tuple(self._answer(r, i) for i in r.indices)
            )
            for r in requests
        ]

    def _answer(self, request, index):
        good = index == 1 or right(self._arm, self._scale, request.problem_id)
        if self._args.get("hopeless") and index == -1:
            good = False
        text = "it is " + request.prompt[-1] if good else "?"
        return Generation(text, tuple(text.encode()), "stop")

    def describe(self):
        return {"model": "by scale", "adapter": self._adapter}

    def close(self):
        pass


def train(job):
    import torch
    from safetensors.torch import save_file

    job.output.mkdir(parents=True)
    (job.output / "adapter_config.json").write_text('{"peft_type": "LORA"}')
    ones = {f"{m}.lora_{x}.weight": torch.ones(2, 2) for x in "AB" for m in "qv"}
    ones["v.lora_A.weight"] *= share(job.arm.name)  # no two arms have one adapter
    save_file(ones, job.output / "adapter_model.safetensors")
    return {"seconds": 0.0}


@hookimpl
def register_samplers(register):
    register("by_scale", ByScale, operational=["log"])


@hookimpl
def register_trainers(register):
    register("ones", train)
"""
)


@dataclass(frozen=True)
class ScaledLetters(LettersTask):
    """The letters task, with models whose losses depend on the adapter's scale."""

    @property
    def plugins(self) -> list[str]:
        return [*super().plugins, str(self.folder / "by_scale.py")]

    def scale(self, name: str, stages: tuple[str, ...] = STAGES, **keys: Any) -> RunDirectory:
        settings = {
            "conditions": ["gapft", "uniform"],
            "seeds": [13, 21],
            "budget": {"n": 4},
            "model": {"backend": "by_scale"},
            "training": {"trainer": "ones", "repetitions": 1},
            "search": {"k": 2, "chunk": 20},
            "statistics": {"replicates": 100},
            "experiments": {"scaling": {"calibration": CALIBRATION}},
        }
        return self.run(name, stages, SPLITS, **{**settings, **keys})  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def task(tmp_path_factory: pytest.TempPathFactory) -> ScaledLetters:
    folder = tmp_path_factory.mktemp("scaled")
    scaled_task = ScaledLetters(
        write_letters_task(folder, pool=CALIBRATION + 40, audit=AUDIT).folder
    )
    (folder / "by_scale.py").write_text(PLUGIN)
    return scaled_task


@pytest.fixture(scope="module")
def run(task: ScaledLetters) -> RunDirectory:
    return task.scale("scaled")


@pytest.fixture(scope="module")
def planted() -> dict[str, Any]:
    names: dict[str, Any] = {}
    exec(PLUGIN, names)
    return names


def read_ids(run: RunDirectory, split: str) -> list[str]:
    problem_ids: list[str] = pq.read_table(run.path / split / "problems.parquet")[
        "problem_id"
    ].to_pylist()
    return problem_ids


def all_arms() -> list[Arm]:
    return [Arm(name.split("-")[0], int(name[-2:])) for name in LOSSES]


def read_choice(run: RunDirectory, arm: Arm) -> dict[str, Any]:
    content = json.loads((run.path / "scaled" / arm.name / "scaling.json").read_text())
    return dict(content)


def test_decodes_calibration_split_only_greedily(task: ScaledLetters, run: RunDirectory) -> None:
    held = read_ids(run, "calibration")
    assert len(held) == CALIBRATION
    assert set(held).isdisjoint({*read_ids(run, "pool"), *read_ids(run, "audit")})
    assert len(read_ids(run, "pool")) == 40
    responses = pq.read_table(run.path / "calibration/responses.parquet").to_pylist()
    assert [(r["problem_id"], r["index"]) for r in responses] == [(i, -1) for i in held]
    sampled = {i for arm, _, do_sample, indices in task.log("scaled") if do_sample for i in indices}
    assert sampled.isdisjoint(held)
    assert not (run.path / "calibration/states.parquet").exists()


def test_half_copied_adapter_is_trained_again(
    task: ScaledLetters, run: RunDirectory, tmp_path: Path
) -> None:
    """The adapter is a plugin trainer's; its folder records the hash of its weights."""
    copied = Path(shutil.copytree(run.path, tmp_path / "run"))
    arm = all_arms()[0]

    def train_again() -> None:
        train_arms(
            run_path=str(copied), plugin_files=task.plugins, arms=[[arm.condition, arm.seed]]
        )

    train_again()
    unseal(copied, f"adapters/{arm.name}")
    train_again()
    weights = copied / "adapters" / arm.name / "adapter_model.safetensors"
    weights.write_bytes(weights.read_bytes()[:100])
    with pytest.raises(UserError, match=rf"adapters/{arm.name}: is incomplete.*remove the folder"):
        train_again()


def unseal(run: Path, folder: str) -> None:
    """Unseal a folder, as if the run had been copied before it was sealed."""
    manifest = json.loads((run / "manifest.json").read_text())
    del manifest["files"][folder]
    (run / "manifest.json").write_text(json.dumps(manifest))


def test_half_copied_scaled_folder_is_made_again(
    task: ScaledLetters, run: RunDirectory, tmp_path: Path
) -> None:
    copied = RunDirectory.open(shutil.copytree(run.path, tmp_path / "run"))
    folder = f"scaled/{all_arms()[0].name}"
    unseal(copied.path, folder)
    weights = copied.path / folder / "adapter_model.safetensors"
    whole = weights.read_bytes()
    weights.write_bytes(whole[:100])
    run_stages(task.context(copied, SPLITS), ["experiments"], lambda stage: None)  # type: ignore[arg-type]
    assert weights.read_bytes() == whole
    assert copied.manifest()["files"] == run.manifest()["files"]


def test_every_arm_chooses_by_the_rule(run: RunDirectory, planted: dict[str, Any]) -> None:
    held = [i for i in read_ids(run, "calibration") if planted["solved"](i)]
    assert len(held) > 46, "else no scale is safe"
    for arm in all_arms():
        content = read_choice(run, arm)
        assert content["scale"] == LOSSES[arm.name][1], arm.name
        assert content["solved"] == len(held)
        lost = [sum(not planted["right"](arm.name, s, i) for i in held) for s in SCALES]
        assert [scale_facts["regressed"] for scale_facts in content["scales"]] == lost
        assert [scale_facts["upper_bound"] for scale_facts in content["scales"]] == [
            compute_upper_bound(count, len(held), 0.05 / 4) for count in lost
        ]


def test_decodes_only_missing_scales(
    task: ScaledLetters, run: RunDirectory, planted: dict[str, Any]
) -> None:
    """Decode 0.75 for every arm, and the chosen scale where it is neither 0 nor 1."""
    expected = {
        *(("scaled", arm.name, 0.75) for arm in all_arms()),
        ("scaled", "uniform-seed13", 0.25),
    }
    audited = set(read_ids(run, "audit"))
    decoded = {
        ("scaled", arm, scale)
        for arm, scale, _, problems in task.log("scaled")
        if arm and scale < 1 and set(problems) <= audited
    }
    assert decoded == expected
    for _, name, scale in expected:
        arm = next(arm for arm in all_arms() if arm.name == name)
        rows = pq.read_table(run.sealed(layout.scaled_decisions_path(arm, scale))).to_pylist()
        assert {r["problem_id"]: r["status"] == "pass" for r in rows} == {
            i: planted["right"](name, scale, i) for i in audited
        }


def test_reports_choices_and_their_effects(run: RunDirectory, planted: dict[str, Any]) -> None:
    results = json.loads((run.path / "report/results.json").read_text("utf-8"))["scaling"]
    audited = read_ids(run, "audit")
    solved = [i for i in audited if planted["solved"](i)]
    for entry in results["checkpoints"]:
        name = f"{entry['condition']}-seed{entry['seed']}"
        scale = LOSSES[name][1]
        assert entry["scale"] == scale
        for when, at in (("before", 1.0), ("after", scale)):
            lost = sum(not planted["right"](name, at, i) for i in solved)
            assert entry["audit"]["regressed"][when] == lost
            assert entry["audit"]["rho_G"][when] == lost / len(solved)
        stated = pq.read_table(run.path / "audit/states.parquet").to_pylist()
        for when, at in (("before", 1.0), ("after", scale)):
            for state in "SU":
                failed = [row["problem_id"] for row in stated if row["state"] == state]
                right = sum(planted["right"](name, at, i) for i in failed)
                expected = right / len(failed) if failed else None
                assert entry["audit"][f"kappa_{state}"][when] == expected, (name, state, when)
        for what, at in (("source", 0.0), ("trained", 1.0), ("fixed", 0.75), ("chosen", scale)):
            right = sum(planted["right"](name, at, i) for i in audited)
            assert entry["audit"]["pass_at_1"][what] == right / len(audited)
    environments = [entry["environment"] for entry in results["checkpoints"]]
    assert environments == ["scaled/gapft"] * 2 + ["scaled/uniform"] * 2
    gapft, uniform = (results["environments"][name] for name in dict.fromkeys(environments))
    assert gapft["scales"] == {"0": 0, "0.25": 0, "0.5": 0, "0.75": 1, "1": 1}
    assert uniform["scales"] == {"0": 1, "0.25": 1, "0.5": 0, "0.75": 0, "1": 0}
    assert gapft["above_tolerance"] == {"before": 1, "after": 0}
    assert uniform["above_tolerance"] == {"before": 1, "after": 0}
    for name, entry in results["environments"].items():
        members = [
            c["audit"]["pass_at_1"] for c in results["checkpoints"] if c["environment"] == name
        ]
        for what in ("source", "fixed", "trained"):
            mean = sum(m["chosen"] - m[what] for m in members) / 2
            assert entry[f"against_{what}"]["mean"] == pytest.approx(mean, abs=1e-12)
            low, high = entry[f"against_{what}"]["ci95"]
            assert low <= mean <= high
    report = (run.path / "report/report.md").read_text("utf-8")
    assert (
        "## Adapter scaling\n\nOf 4 checkpoints, 1 chose scale 1, 1 scale 0.75, 1 scale 0.25 and "
        "1 scale 0. As trained, 2 lost more than 10% of the audit problems that the source solves; "
        "at the chosen scale, 0."
    ) in report
    assert (run.path / "report/tables/scaling.csv").read_text().count("\n") == 5
    assert (run.path / "report/tables/scaling_bounds.csv").read_text().count("\n") == 17
    assert "| ρ_G | κ_S | κ_U |" in report.replace("\\", "")


def change_table(run: RunDirectory, file: str, edit: Any, **facts: Any) -> None:
    """Change a table and seal it again."""
    path = run.path / file
    table = edit(pq.read_table(path))
    own = json.loads(pq.read_metadata(path).metadata[b"gapft"]) | facts
    pq.write_table(table.replace_schema_metadata({"gapft": json.dumps(own)}), path)
    seal_again(run.path, file)


def fail_all(table: pa.Table) -> pa.Table:
    place = table.schema.get_field_index("status")
    return table.set_column(place, table.schema.field(place), [["fail"] * table.num_rows])


def list_differences(task: ScaledLetters, run: RunDirectory) -> list[str]:
    return verify(run.path, task.plugins).differences


def test_verify_finds_incomplete_audits(task: ScaledLetters) -> None:
    run = task.scale("lacking", STAGES[:5], conditions=["gapft"])
    assert list_differences(task, run) == []
    silent, audited = (
        build_calibration_path(Arm("gapft", 13), 1.0),
        "decisions/gapft-seed13.scale-0.75",
    )
    change_table(run, silent, lambda table: table, adapter=None)
    other = build_calibration_path(Arm("gapft", 21), 0.25)
    change_table(
        run, other, lambda table: table, adapter={"arm": "gapft-seed21", "weights_sha256": "0"}
    )
    (run.path / f"{audited}.parquet").unlink()
    lost = list_differences(task, run)
    assert f"{audited}.parquet: is sealed in the manifest, but missing" in lost
    assert f"{silent}: does not record its adapter, but other tables do" in lost
    another = f"{other}: was decoded with a different adapter than gapft-seed21 at scale 0.25"
    assert any(line.startswith(another) for line in lost)
    run.unseal([f"{audited}.parquet"])
    assert f"{audited}.parquet is not made" in verify(run.path, task.plugins).missing


def test_second_command_decodes_nothing(task: ScaledLetters, run: RunDirectory) -> None:
    calls = task.log("scaled")
    before = hash_files(run)
    run_stages(task.context(run, SPLITS), ["search", "audit", "experiments"], lambda stage: None)  # type: ignore[arg-type]
    assert task.log("scaled") == calls
    assert hash_files(run) == before


def hash_files(run: RunDirectory) -> dict[str, str]:
    return {
        path.relative_to(run.path).as_posix(): sha256(path)
        for folder in ("decisions", "scaled", "calibration")
        for path in (run.path / folder).rglob("*")
        if path.is_file()
    }


def test_resumes_after_interruption_with_same_result(
    task: ScaledLetters, run: RunDirectory
) -> None:
    """A failing call ends the command like a kill; stored results remain."""
    fuse = task.folder / "fuse"
    half = task.scale("stopped", STAGES[:3], at="elsewhere/stopped")

    def resume() -> None:
        context = task.context(half, SPLITS)  # type: ignore[arg-type]
        run_stages(context, ["audit", "experiments"], lambda stage: None)

    try:
        for calls in (0, 1, 3, 7):
            fuse.write_text(str(calls))
            with pytest.raises(GapftError, match="the fuse blew"):
                resume()
    finally:
        fuse.unlink()
    resume()
    assert hash_files(half) == hash_files(run)
    assert sorted(map(str, task.log("stopped"))) == sorted(map(str, task.log("scaled")))
    assert [p.name for p in (half.path / "scaled").glob(".*")] == []


def test_scales_to_zero_without_solved_calibration_problems(
    task: ScaledLetters,
) -> None:
    run = task.scale("hopeless", (), model={"backend": "by_scale", "args": {"hopeless": True}})
    warnings = run.manifest()["warnings"]
    [nothing] = [w for w in warnings if w.startswith("calibration: ")]
    [warning] = [w for w in warnings if w.startswith("experiment scaling: ")]
    assert "responses passed" in nothing
    assert "solves 0 calibration problems, too few for any scale above 0" in warning
    assert "upper bound is 100.0%" in warning
    run_stages(task.context(run, SPLITS), STAGES, lambda stage: None)  # type: ignore[arg-type]
    for arm in all_arms():
        content = read_choice(run, arm)
        assert (content["scale"], content["solved"]) == (0.0, 0)
        assert [scale_facts["upper_bound"] for scale_facts in content["scales"]] == [1.0] * 4
        assert [scale_facts["rho_G"] for scale_facts in content["scales"]] == [None] * 4
    report = (run.path / "report/report.md").read_text("utf-8")
    assert "Of 4 checkpoints, 4 chose scale 0." in report
    results = json.loads((run.path / "report/results.json").read_text("utf-8"))["scaling"]
    assert results["environments"]["hopeless/gapft"]["against_source"] == {
        "mean": 0.0,
        "ci95": [0.0, 0.0],
    }


def test_uses_the_recipes_tolerance_and_level(task: ScaledLetters) -> None:
    settings = {"calibration": CALIBRATION, "tolerance": 0.7, "level": 0.2}
    run = task.scale("lenient", STAGES[:5], experiments={"scaling": settings})
    assert read_choice(run, Arm("gapft", 21))["scale"] == 1
    assert read_choice(run, Arm("gapft", 21))["scales"][0]["upper_bound"] == compute_upper_bound(
        0, read_choice(run, Arm("gapft", 21))["solved"], 0.05
    )
    more = settings | {"calibration": CALIBRATION + 1}
    again = task.scale("lenient", STAGES[:5], experiments={"scaling": more})
    assert len(read_ids(again, "calibration")) == CALIBRATION + 1
    assert len(read_ids(again, "pool")) == 39


def test_verifies_plugin_adapters_as_far_as_recorded(
    task: ScaledLetters, run: RunDirectory
) -> None:
    result = verify(run.path, task.plugins)
    assert result.differences == []
    [unverified] = [line for line in result.checked if "of trainer 'ones'" in line]
    assert unverified.endswith("not verified")


def test_verifies_calibration_split_alone(task: ScaledLetters) -> None:
    recipe = RunDirectory.open(task.scale("begun", ()).path).recipe
    run = RunDirectory.create_or_open(task.folder / "alone", recipe)
    run_stages(task.context(run, ("calibration",)), ["search"], lambda stage: None)
    result = verify(run.path, task.plugins)
    assert result.differences == []
    assert result.missing[:2] == ["the pool is not searched", "the audit is not searched"]


def test_changes_nothing_without_the_section(task: ScaledLetters) -> None:
    run = task.run(
        "plain",
        STAGES,
        ("pool", "audit"),
        conditions=["gapft"],
        budget={"n": 4},
        model={"backend": "by_scale"},
        training={"trainer": "ones", "repetitions": 1},
        search={"k": 2},
        statistics={"replicates": 20},
    )
    assert "experiments" not in list_stages(find_experiments(task.context(run, SPLITS)))
    assert len(read_ids(run, "pool")) == CALIBRATION + 40
    assert sorted(p.name for p in (run.path / "decisions").iterdir()) == ["gapft-seed13.parquet"]
    assert not (run.path / "scaled").exists()
    assert not (run.path / "calibration").exists()
    assert "scaling" not in json.loads((run.path / "report/results.json").read_text("utf-8"))


def test_several_workers_give_the_same_decisions(task: ScaledLetters, run: RunDirectory) -> None:
    keys: dict[str, Any] = {"executor": {"workers": 9}, "search": {"k": 2, "chunk": 1}}
    divided = task.scale("divided", (), at="elsewhere/divided", **keys)
    assert divided.manifest()["reused"]["calibration"] == {}
    assert read_ids(divided, "calibration") == read_ids(run, "calibration")
    first, second = (
        pq.read_table(
            run_directory.path / "calibration/responses.parquet", columns=["problem_id", "status"]
        )
        for run_directory in (divided, run)
    )
    assert first.equals(second)


def test_rejects_scaling_before_selection(task: ScaledLetters) -> None:
    run = task.scale("early", ())
    with pytest.raises(UserError, match="nothing is selected yet"):
        run_stages(task.context(run), ["experiments"], lambda stage: None)


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
    content = json.loads((folder / "report/results.json").read_text("utf-8"))
    return dict(content)


def test_study_pools_scaled_cells(task: ScaledLetters, run: RunDirectory, tmp_path: Path) -> None:
    other = task.scale("other", data={"pool_limit": 20})
    study = tmp_path / "study"
    pooled = run_scaled_study(study, A=run, B=other)["scaling"]
    # gapft and uniform have the same budget, so they are one environment
    assert list(pooled["environments"]) == ["A/gapft", "B/gapft"]
    assert pooled["mean"]["environments"] == ["A/gapft", "B/gapft"]
    assert pooled["mean"]["checkpoints"] == 4
    means = []
    for name, cell in (("A", run), ("B", other)):
        results = json.loads((cell.path / "report/results.json").read_text("utf-8"))["scaling"]
        own = results["environments"][f"{cell.recipe.name}/gapft"]
        in_study = pooled["environments"][f"{name}/gapft"]
        assert in_study["environments"] == [f"{name}/gapft"]
        assert in_study.keys() == own.keys()
        for key in own.keys() - {"environments"}:
            if isinstance(own[key], dict) and "mean" in own[key]:  # names decide the random streams
                assert in_study[key]["mean"] == own[key]["mean"], key
            else:
                assert in_study[key] == own[key], key
        means.append(own["against_source"]["mean"])
    assert pooled["mean"]["against_source"]["mean"] == pytest.approx(sum(means) / 2)
    tables = {path.name for path in (study / "report/tables").iterdir()}
    assert {"scaling.csv", "scaling_bounds.csv"} <= tables
    assert "mean of 2" in (study / "report/report.md").read_text("utf-8")
    assert verify_study(study, task.plugins).differences == []
    again = run_scaled_study(tmp_path / "again", B=other, A=run)["scaling"]
    assert again == pooled


def test_study_pools_every_budget_of_a_cell(task: ScaledLetters, tmp_path: Path) -> None:
    run = task.scale("budgets", conditions={"gapft": {}, "uniform": {"n": 3}})
    pooled = run_scaled_study(tmp_path / "study", A=run)["scaling"]
    assert pooled["mean"]["environments"] == ["A/gapft", "A/uniform"]


def test_study_needs_scales_of_cells_that_scale(
    task: ScaledLetters, run: RunDirectory, tmp_path: Path
) -> None:
    half = task.scale("half", STAGES[:4], data={"pool_limit": 20})
    with pytest.raises(GapftError, match=r"B: .*run the stage that writes it first"):
        run_scaled_study(tmp_path / "study", A=run, B=half)
    content = json.loads((tmp_path / "study/report/results.json").read_text("utf-8"))
    assert "scaling" not in content


def test_study_rejects_different_scaling_rules(
    task: ScaledLetters, run: RunDirectory, tmp_path: Path
) -> None:
    scaling = {"scaling": {"calibration": CALIBRATION, "tolerance": 0.08}}
    strict = task.scale("strict", (), experiments=scaling)
    with pytest.raises(UserError, match=r"experiments\.scaling\.tolerance 0\.1 → 0\.08"):
        run_scaled_study(tmp_path / "study", A=run, B=strict)
