"""Decodes and an experiment's steps on a written run, without a model: made, planned, verified."""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from gapft_harness.core.errors import UserError
from gapft_harness.core.files import write_json
from gapft_harness.core.records import Arm, Example, Problem
from gapft_harness.engine.outputs import NotKnownYet
from gapft_harness.engine.planner import Planner, StrictPlanner
from gapft_harness.engine.store import open_store
from gapft_harness.hooks.manager import load_plugins
from gapft_harness.recipe.reading import check_recipe
from gapft_harness.run_directory import layout
from gapft_harness.run_directory.directory import RunDirectory
from gapft_harness.run_directory.recorded import read_decodes
from gapft_harness.run_directory.tables import write_examples, write_problems, write_states
from gapft_harness.stages.context import Context
from gapft_harness.stages.experiment import View, load_experiments, run_experiments
from gapft_harness.stages.experiment.stage import build_view
from gapft_harness.stages.integrity.differences import Differences
from gapft_harness.stages.running import build_runner, make_outputs
from gapft_harness.stages.steps import list_audit_steps
from gapft_harness.stages.verify.judging import TableJudge
from gapft_harness.stages.verify.steps import build_checker, check_decodes
from tests.kit.plugins import build_plugin
from tests.kit.recording_run import InProcessExecutor
from tests.kit.records import read_records, record_again, record_files

ARMS = (Arm("gapft", 13), Arm("uniform", 13))

#: A response is the arm, the problem and the index; responses of gapft pass. A verdict is a timeout
#: if its problem is named in the file ``late`` beside the plugin.
_SOURCE = """
import json
import pathlib

HERE = pathlib.Path(__file__).parent


def write_log(**record):
    with (HERE / "log").open("a") as file:
        file.write(json.dumps(record) + "\\n")


class Planted:
    def __init__(self, settings, adapter):
        self._arm = adapter.arm.name if adapter else "source"

    def generate(self, requests, decoding, report):
        write_log(step="generate", arm=self._arm, count=sum(len(r.indices) for r in requests))
        return [
            Generated((1, 2), tuple(self._respond(r.problem_id, i) for i in r.indices))
            for r in requests
        ]

    def _respond(self, problem_id, index):
        text = f"{self._arm} {problem_id} {index}"
        return Generation(text, tuple(text.encode()), "stop")

    def describe(self):
        return {"model": "planted"}

    def close(self):
        pass


class Verifier:
    def verify(self, responses, golds):
        write_log(step="judge", count=len(responses))
        late = (HERE / "late").read_text().split() if (HERE / "late").exists() else []
        return [self._judge(response, late) for response in responses]

    def _judge(self, response, late):
        if response.split()[1] in late:
            return Verdict("timeout", "late")
        return Verdict("pass" if response.startswith("gapft") else "fail")


def count_examples(output, examples, unit):
    write_log(step="count_examples")
    output.write_text(json.dumps({unit: len(api.read_examples(examples))}))
    return {"unit": unit}


class Settings(RecipeSection):
    unit: str = "examples"


class Counting(Experiment):
    name, section = "counting", Settings

    def steps(self, view):
        settings = self.settings(view.recipe).model_dump()
        yield [
            view.step(
                f"counting/{arm.name}.json",
                count_examples,
                {"examples": layout.selection_path(arm)},
                settings,
            )
            for arm in view.arms()
        ]
        first = json.loads(view.file(f"counting/{view.arms()[0].name}.json").read_text())
        source = Arm("source", 0)
        samples = sum(first.values())
        yield [view.decode(layout.decisions_path(source, "more"), source, samples=samples)]
"""
PLUGIN = build_plugin(
    f"from gapft_harness import api\n{_SOURCE}",
    samplers=['"planted", Planted'],
    verifiers=['"planted", Verifier'],
    experiments=['"counting", Counting'],
)

PROBLEMS = ("p1", "p2", "p3")


@dataclass
class Written:
    """A folder with a plugin and written runs."""

    folder: Path

    @property
    def plugins(self) -> list[str]:
        return [str(self.folder / "plugin.py")]

    def write(self, name: str = "run") -> RunDirectory:
        """Write a searched, selected and trained run."""
        sections = {
            "name": "written",
            "data": {"task": "t"},
            "model": {"backend": "planted", "args": {"pretrained": "none"}},
            "search": {"k": 4},
            "conditions": [arm.condition for arm in ARMS],
            "seeds": [13],
            "experiments": {"counting": {}},
        }
        recipe = check_recipe(sections, "test")
        run = RunDirectory.create_or_open(self.folder / name, recipe)
        problems = [Problem(name, f"{name}?", "g", {}, ()) for name in PROBLEMS]
        path = run.path / layout.problems_path("audit")
        write_problems(path, problems, lambda ids: iter([(1, 2) for _ in ids]))
        write_states(run.path / layout.states_path("pool"), ())
        source = {"model": "planted"}
        facts: dict[str, dict[str, Any]] = {
            "audit": {"source": source, "warnings": []},
            layout.states_path("pool"): {"states": {"G": 0, "S": 2, "U": 0}},
        }
        for arm in ARMS:
            adapter = run.path / layout.adapter_path(arm)
            adapter.mkdir(parents=True)
            (adapter / "adapter_config.json").write_text("{}")
            (adapter / "adapter_model.safetensors").write_text(arm.name)
            examples = [Example("s", "S", (1,), (2,), 0, 0, True, "s")] * 2
            write_examples(run.path / layout.selection_path(arm), examples)
            write_json(run.path / layout.budget_path(arm), {})
            facts[layout.adapter_path(arm)] = {}
            facts[layout.selection_path(arm)] = {"matched": True}
            facts[layout.budget_path(arm)] = {"n": 2}
        record_files(run, facts)
        task = {
            "name": "t", "verifier": "planted", "verifier_params": {}, "keep": "shortest",
            "decoding": {"max_gen_toks": 8, "until": []},
            "episode": {"attempts": 1, "executions": 1},
        }  # fmt: skip
        run.update_facts(lambda facts: facts.update({"task": task}))
        return run

    def context(self, run: RunDirectory, lines: list[str] | None = None) -> Context:
        report = (lines if lines is not None else []).append
        return Context(run, InProcessExecutor(), self.plugins, report_line=report)

    def finish(self, run: RunDirectory, lines: list[str] | None = None) -> None:
        self.audit(run, lines)
        run_experiments(self.context(run, lines))

    def audit(self, run: RunDirectory, lines: list[str] | None = None) -> None:
        context = self.context(run, lines)
        make_outputs(context, build_runner(context), list_audit_steps(build_view(context)))

    def require_steps(self, run: RunDirectory) -> None:
        """Require the outputs of the experiment's steps, as a report does."""
        plugins = load_plugins(self.plugins)
        view, planner = View(run, plugins, ARMS, self.plugins), StrictPlanner(run.outputs)
        for steps in load_experiments(run.recipe, plugins)[0].steps(view):
            view.add(planner(steps))

    def take_work(self) -> list[str]:
        """Return the work since the last call, in order."""
        log = self.folder / "log"
        lines = log.read_text().splitlines() if log.exists() else []
        log.unlink(missing_ok=True)
        return [" ".join(map(str, json.loads(line).values())) for line in lines]

    def verify(self, run: RunDirectory) -> Differences:
        plugins = load_plugins(self.plugins)
        findings = Differences()
        judge = TableJudge(plugins.create_verifier("planted", {}))
        view = View(run, plugins, ARMS, self.plugins)
        check_decodes(view, build_checker(run, plugins, judge), findings)
        self.take_work()
        return findings


@pytest.fixture
def written(tmp_path: Path) -> Written:
    (tmp_path / "plugin.py").write_text(PLUGIN)
    return Written(tmp_path)


AUDIT = [f"{word} 3" for arm in ARMS for word in (f"generate {arm.name}", "judge")]
COUNTING = ["count_examples"]
SAMPLES = ["generate source 6", "judge 6"]


def read_statuses(run: RunDirectory, table: str) -> list[str]:
    return list(pq.read_table(run.path / table)["status"].to_pylist())


def test_audit_and_experiment_are_made_once(written: Written) -> None:
    run = written.write()
    written.finish(run)
    assert written.take_work() == [*AUDIT, *COUNTING, *SAMPLES]
    assert read_statuses(run, "decisions/gapft-seed13.parquet") == ["pass"] * 3
    assert read_statuses(run, "decisions/uniform-seed13.parquet") == ["fail"] * 3
    rows = pq.read_table(run.path / "decisions/source-seed0.more.parquet").to_pylist()
    assert [(row["problem_id"], row["index"]) for row in rows] == [
        (problem, index) for problem in PROBLEMS for index in (0, 1)
    ]
    assert len({row["seed"] for row in rows}) == 6
    decodes = read_decodes(run)
    assert decodes["gapft-seed13"]["verdicts"] == {"pass": 3}
    assert decodes["source-seed0.more"]["drawn"]["samples"] == 6
    files = {name: (run.path / name).stat().st_mtime_ns for name in read_records(run.path)}
    written.finish(run)
    written.require_steps(run)
    assert written.take_work() == []
    assert {name: (run.path / name).stat().st_mtime_ns for name in files} == files
    written.finish(written.write("other"))
    assert written.take_work() == []
    shutil.rmtree(run.path / "decisions")
    written.finish(run)
    assert written.take_work() == []
    assert written.verify(run).differences == []


def test_changed_adapter_is_decoded_again(written: Written) -> None:
    """Of gapft alone; a changed base path in its configuration changes nothing."""
    run = written.write()
    written.finish(run)
    written.take_work()
    adapter = run.path / "adapters/gapft-seed13"
    config = {"base_model_name_or_path": "/elsewhere"}
    (adapter / "adapter_config.json").write_text(json.dumps(config))
    record_again(run.path, "adapters/gapft-seed13")
    written.finish(run)
    assert written.take_work() == []
    (adapter / "adapter_model.safetensors").write_text("other")
    record_again(run.path, "adapters/gapft-seed13")
    lines: list[str] = []
    written.finish(run, lines)
    assert written.take_work() == AUDIT[:2]
    assert lines == ["decisions: making 1 file again: adapter changed"]


def test_changed_setting_and_removed_experiment(written: Written) -> None:
    run = written.write()
    written.finish(run)
    written.take_work()
    run.recipe.experiments["counting"] = {"unit": "rows"}
    with pytest.raises(UserError, match="unit examples → rows"):
        written.require_steps(run)
    lines: list[str] = []
    written.finish(run, lines)
    assert written.take_work() == COUNTING
    assert lines == ["counting: making 2 files again: unit examples → rows"]
    del run.recipe.experiments["counting"]
    written.finish(run, lines)
    assert not [*run.path.glob("counting/*"), *run.path.glob("decisions/source-*")]
    made = [name for name in read_records(run.path) if name.startswith(("counting", "decisions"))]
    assert made == [f"decisions/{arm.name}.parquet" for arm in ARMS]
    assert written.verify(run).differences == []


def test_plan_of_an_experiment_ends_at_what_is_not_known(written: Written) -> None:
    run = written.write()
    plugins = load_plugins(written.plugins)
    view = View(run, plugins, ARMS, written.plugins)
    planner = Planner(run.outputs, open_store(run.path))
    experiment = plugins.get("experiment", "counting").value()
    steps = experiment.steps(view)
    view.add(planner(next(steps)))
    with pytest.raises(NotKnownYet, match=r"counting/gapft-seed13\.json is not made yet"):
        next(steps)
    assert [*planner.new] == [f"counting/{arm.name}.json" for arm in ARMS]
    assert written.take_work() == []


def test_timeout_stays_in_its_run(written: Written) -> None:
    run = written.write()
    (written.folder / "late").write_text("p2")
    written.audit(run)
    written.take_work()
    (written.folder / "late").unlink()
    written.audit(run)
    assert written.take_work() == []
    table = "decisions/gapft-seed13.parquet"
    assert read_statuses(run, table) == ["pass", "timeout", "pass"]
    other = written.write("other")
    written.audit(other)
    assert [line for line in written.take_work() if "generate" in line] == []
    assert read_statuses(other, table) == ["pass"] * 3
    findings = written.verify(run)
    assert [line for line in findings.differences if "counting" not in line] == []


def test_missing_outputs_are_no_differences(written: Written) -> None:
    findings = written.verify(written.write())
    assert findings.differences == []
    assert "decisions/gapft-seed13.parquet is not made" in findings.missing
    assert "counting/gapft-seed13.json is not made" in findings.missing
