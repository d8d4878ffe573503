"""Decisions of compared arms on their training problems, from the stages to the report."""

import json
from dataclasses import dataclass

import pyarrow.parquet as pq
import pytest

from gapft_harness.core.errors import UserError
from gapft_harness.stages.context import Context
from gapft_harness.stages.pipeline import run_stages
from tests.kit.recording_run import InProcessExecutor, LettersTask, write_letters_task

STAGES = ("states", "select", "train", "audit", "experiments", "report")
SEEDS = (13, 21)

#: A sampler: its source solves every third problem greedily and the others in its samples; a
#: trained model solves a problem or not by a hash of its arm and the problem's id.
PLUGIN = """
import hashlib
import json

from gapft_harness.api import Generated, Generation, hookimpl


def solves(arm, problem_id):
    return hashlib.sha256(f"{arm} {problem_id}".encode()).digest()[0] % 3 > 0


class ByArm:
    def __init__(self, settings, adapter):
        self._log, self._adapter = settings.model_args["log"], adapter

    def generate(self, requests, decoding, report):
        arm = self._adapter.arm.name if self._adapter else "source"
        with open(self._log, "a") as file:
            file.writelines(json.dumps([arm, r.problem_id]) + "\\n" for r in requests)
        return [
            Generated(
                tuple(r.prompt.encode()), tuple(self._answer(arm, r, i) for i in r.indices)
            )
            for r in requests
        ]

    def _answer(self, arm, request, index):
        if arm == "source":
            right = index != -1 or int(request.prompt.split()[1][:-1]) % 3 == 0
        else:
            right = solves(arm, request.problem_id)
        text = "it is " + request.prompt[-1] if right else "?"
        return Generation(text, tuple(text.encode()), "stop")

    def describe(self):
        return {"model": "by arm"}

    def close(self):
        pass


def train(job):
    job.output.mkdir(parents=True)
    (job.output / "adapter_config.json").write_text("{}")
    return {"seconds": 0.0}


@hookimpl
def register_samplers(register):
    register("by_arm", ByArm)


@hookimpl
def register_trainers(register):
    register("none", train)
"""


@dataclass(frozen=True)
class ComparedLetters(LettersTask):
    """The letters task with models for two compared conditions."""

    @property
    def plugins(self):
        return [*super().plugins, str(self.folder / "by_arm.py")]

    def compare(self, name, stages=STAGES, **keys):
        settings = {
            "conditions": ["diffuse", "concentrated"],
            "seeds": list(SEEDS),
            "budget": {"n": 8, "replay": 2},
            "experiments": {"allocation": {"diffuse": "diffuse", "concentrated": "concentrated"}},
            "model": {"backend": "by_arm"},
            "training": {"trainer": "none", "repetitions": 1},
            "search": {"k": 3, "chunk": 5},
            "statistics": {"replicates": 200},
        }
        return self.run(name, stages, ("pool", "audit"), **{**settings, **keys})


@pytest.fixture(scope="module")
def task(tmp_path_factory):
    folder = tmp_path_factory.mktemp("letters")
    compared = ComparedLetters(write_letters_task(folder, pool=30, audit=21).folder)
    (folder / "by_arm.py").write_text(PLUGIN)
    return compared


@pytest.fixture(scope="module")
def run(task):
    return task.compare("compared")


@pytest.fixture(scope="module")
def solves(task):
    names = {}
    exec(PLUGIN, names)
    return names["solves"]


def read_selected(run, arm):
    rows = pq.read_table(run.path / f"selections/{arm}.parquet").to_pylist()
    return [row["problem_id"] for row in rows if row["state"] == "S"]


def test_arms_decide_all_trained_problems(run, solves):
    for seed in SEEDS:
        trained = sorted(set(read_selected(run, f"diffuse-seed{seed}")))
        assert len(trained) == 8
        for condition in ("diffuse", "concentrated"):
            arm = f"{condition}-seed{seed}"
            table = pq.read_table(run.sealed(f"decisions/{arm}.exposed.parquet")).to_pylist()
            assert [row["problem_id"] for row in table] == trained
            assert [row["index"] for row in table] == [-1] * 8
            decisions = {row["problem_id"]: row["status"] == "pass" for row in table}
            assert decisions == {problem: solves(arm, problem) for problem in trained}
            counts = run.manifest()["verdict_counts"][f"{arm}.exposed"]
            assert counts.get("pass", 0) == sum(decisions.values())


def test_report_contrast_matches_decisions(run, solves):
    results = json.loads((run.path / "report/results.json").read_text("utf-8"))["allocation"]
    contrasts = []
    for seed in SEEDS:
        once, twice = (
            read_selected(run, f"{condition}-seed{seed}")
            for condition in ("diffuse", "concentrated")
        )
        in_a = set(twice)
        in_b = set(once) - in_a
        assert len(in_a) == len(in_b) == 4

        def compute_rate(condition, half, seed=seed):
            return sum(solves(f"{condition}-seed{seed}", problem) for problem in half) / 4

        seed_results = results["seeds"][str(seed)]
        assert seed_results["problems_a_half"] == 4
        assert seed_results["replay"] == 2
        assert seed_results["a_A_1"] == compute_rate("diffuse", in_a)
        assert seed_results["a_A_2"] == compute_rate("concentrated", in_a)
        assert seed_results["a_B_0"] == compute_rate("concentrated", in_b)
        assert seed_results["a_B_1"] == compute_rate("diffuse", in_b)
        gain, loss = (
            seed_results["a_B_1"] - seed_results["a_B_0"],
            seed_results["a_A_2"] - seed_results["a_A_1"],
        )
        assert seed_results["contrast"] == gain / 2 - loss / 2
        contrasts.append(seed_results["contrast"])
    assert results["contrast"]["mean"] == sum(contrasts) / len(contrasts)
    assert "## Coverage against repetition" in (run.path / "report/report.md").read_text("utf-8")


def test_second_audit_changes_nothing(task, run):
    files_before = {path: path.read_bytes() for path in run.path.glob("decisions/*")}
    calls = task.log("compared")
    context = Context(run, InProcessExecutor(), task.plugins, [str(task.folder / "tasks")])
    run_stages(context, ["audit", "experiments"], lambda stage: None)
    assert task.log("compared") == calls
    assert {path: path.read_bytes() for path in run.path.glob("decisions/*")} == files_before


def test_without_experiment_only_audit_is_decided(task):
    run = task.compare("plain", experiments={})
    assert [p.name for p in run.path.glob("decisions/*.exposed.parquet")] == []
    assert not (run.path / "report/tables/allocation.csv").exists()


def test_rejects_conditions_without_halves(task):
    with pytest.raises(
        UserError, match=r"arms gapft-seed13 and concentrated-seed13.*key experiments\.allocation"
    ):
        task.compare(
            "refused",
            conditions=["gapft", "concentrated"],
            experiments={"allocation": {"diffuse": "gapft", "concentrated": "concentrated"}},
        )
    assert not (task.folder / "refused" / "adapters").exists()
