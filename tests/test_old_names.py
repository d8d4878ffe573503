"""Plugins that were written for 0.1 import what they did, and get what is there now."""

from __future__ import annotations

import importlib
import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from gapft_harness import api
from gapft_harness.hooks.manager import load_plugins
from gapft_harness.hooks.old_names import MOVED
from tests.command import succeed
from tests.letters_task import write_letters

#: A verifier, a rule, a selector, a sampler and a tracker, each as 0.1 had them.
PLUGIN = '''
import json

from gapft_harness import hookimpl
from gapft_harness.boxes import last_box
from gapft_harness.closing import Closing
from gapft_harness.errors import UserError, did_you_mean
from gapft_harness.hookspecs import hookimpl as the_same
from gapft_harness.protocols import Generated, Generation, SamplerSettings, beyond_context
from gapft_harness.records import GREEDY, Adapter, Evidence, Gold, Pool, Response, Verdict
from gapft_harness.streams import Stream
from gapft_harness.tracking import TrackedArm, Tracker
from gapft_harness.verification import once_each
from gapft_harness.workers import WorkerPool


class Contains(Closing):
    """Passes a response whose box holds the gold letter, or is nothing but it."""

    def __init__(self):
        self.pool = WorkerPool("gapft_harness.math_judge:compare", workers=1, timeout_s=60)

    def verify(self, responses, golds):
        return once_each(self.judge, responses, golds)

    def judge(self, responses, golds):
        found = self.pool.map([[g, last_box(r) or r] for r, g in zip(responses, golds)])
        return [Verdict(outcome.value["status"]) for outcome in found]

    def close(self):
        self.pool.close()


class Letters:
    """Answers with a letter: the first problem for sample 0, the second for sample 1, ..."""

    def __init__(self, settings: SamplerSettings, adapter):
        if settings.model_args != {"pretrained": "none"}:
            raise UserError(f"no such argument; {did_you_mean('x', ['pretrained'])}")

    def generate(self, requests, decoding, seed):
        return [
            beyond_context(request)
            if "0?" in request.prompt
            else Generated(
                (1, 2),
                tuple(
                    Generation(f"\\\\boxed{{{'aeiou'[index]}}}", (5, 6), "stop")
                    for index in request.indices
                ),
            )
            for request in requests
        ]

    def describe(self):
        return {"letters": GREEDY}

    def close(self):
        pass


def rarest(pool: Pool, n: int, rng: Stream):
    """The recovered problems that were solved least often."""
    return sorted(pool.recovered, key=lambda e: (e.passing_samples, rng.key(e.problem_id)))[:n]


def last(passing):
    """The verified sample generated last."""
    return max(passing, key=lambda response: response.index)


@hookimpl
def register_verifiers(register):
    register("contains", Contains, rejudge=False)


@hookimpl
def register_samplers(register):
    register("letters", Letters, own_process=True)


@hookimpl
def register_selectors(register):
    register("rarest", rarest, budget="matched", repeats=False, gold=False)


@hookimpl
def register_response_rules(register):
    register("last", last, stops_early=False)


@the_same
def register_trackers(register):
    register("none", lambda arm: None, needs=["pytest"])
'''

#: What bundled plugins of 0.1 imported, and what its documents named.
IMPORTS = """\
from gapft_harness.boxes import last_box
from gapft_harness.closing import Closing
from gapft_harness.errors import UserError, did_you_mean
from gapft_harness.executors.local import LocalExecutor
from gapft_harness.executors.ray import RayExecutor
from gapft_harness.files import sha256
from gapft_harness.identities import content_hash
from gapft_harness.lm_eval_bridge.benchmarks.livecodebench_tests import MAX_DECODED_BYTES
from gapft_harness.lm_eval_bridge.hf_sampler import HfSampler
from gapft_harness.lm_eval_bridge.retokenizer import Retokenizer
from gapft_harness.lm_eval_bridge.samplers import LmEvalSampler, dummy_sampler
from gapft_harness.lm_eval_bridge.server_sampler import ServerSampler
from gapft_harness.lm_eval_bridge.sglang_sampler import SglangSampler
from gapft_harness.program_feedback import NO_PROGRAM, failure_feedback
from gapft_harness.programs import Suite, last_program, last_program_lcb, read_suite
from gapft_harness.protocols import Executor, RegisterExecutor
from gapft_harness.protocols import RegisterResponseRule, RegisterSampler, Sampler, SamplerSettings
from gapft_harness.protocols import RegisterSelector, RegisterTracker, RegisterVerifier
from gapft_harness.protocols import RegisterTrainer, TrainingJob, beyond_context
from gapft_harness.records import CONTEXT, GREEDY, Adapter, Arm, Decoding
from gapft_harness.records import Evidence, Gold, Pool, Response, Verdict
from gapft_harness.sandbox import Limits, Program, Result, Sandbox, Test
from gapft_harness.streams import Stream
from gapft_harness.tracking import TrackedArm, Tracker
from gapft_harness.training.lora import train_together
from gapft_harness.unicode_text import whole
from gapft_harness.verification import once_each
from gapft_harness.workers import Outcome, WorkerPool
"""


def test_a_plugin_of_0_1_takes_a_run_as_far_as_its_training_sets(tmp_path: Path) -> None:
    write_letters(tmp_path, {"pool": 20, "audit": 5}, keep="last")
    plugin = tmp_path / "mine.py"
    plugin.write_text(PLUGIN)
    words = ("--plugin", plugin, "--include-path", "tasks")
    keys = ("conditions=[rarest]", "seeds=[13]", "budget.n=2", "search.k=4")
    sets = [word for key in keys for word in ("--set", key)]
    model = ("--model", "letters", "--model-args", "pretrained=none")
    succeed("search", "run", "--task", "letters", *model, *sets, *words, cwd=tmp_path)
    for stage in ("states", "select"):
        succeed(stage, "run", "--plugin", plugin, cwd=tmp_path)
    chosen = pq.read_table(tmp_path / "run/selections/rarest-seed13.parquet").to_pylist()
    assert [(row["state"], row["response_ids"]) for row in chosen] == [("S", [5, 6])] * 2
    manifest = json.loads((tmp_path / "run/manifest.json").read_text())
    assert manifest["task"]["keep"] == "last"
    states = pq.read_table(tmp_path / "run/pool/states.parquet").to_pylist()
    # Greedy is "u", index -1; samples 0 to 3 are "a", "e", "i" and "o". Those at 0, 10, 20, ... do
    # not fit the context.
    wanted = {i: "U" if str(i * i).endswith("0") else "SSSSG"[i % 5] for i in range(20)}
    assert {int(row["problem_id"][4:].partition("-")[0]): row["state"] for row in states} == wanted


@pytest.mark.parametrize("line", IMPORTS.splitlines())
def test_what_0_1_imported_is_what_is_there_now(line: str) -> None:
    found: dict[str, object] = {}
    exec(line, found)
    for name, value in found.items():
        if not name.startswith("__"):
            assert value is getattr(api, name)


@pytest.mark.parametrize("old", MOVED)
def test_every_old_name_leads_to_a_module(old: str) -> None:
    assert importlib.util.find_spec(f"gapft_harness.{MOVED[old]}") is not None
    if "vllm" not in old:
        module = importlib.import_module(f"gapft_harness.{old}")
        assert module is importlib.import_module(f"gapft_harness.{MOVED[old]}")
        assert module.__spec__ is not None
        assert module.__spec__.name == module.__name__ == f"gapft_harness.{MOVED[old]}"


@pytest.mark.parametrize(
    "line",
    [
        "import gapft_harness.sealing",
        "from gapft_harness import sealing",
        "from gapft_harness.run_lock import held",
        "from gapft_harness.verification import verify_unique",
        "from gapft_harness.lm_eval_bridge.samplers import assemble",
    ],
)
def test_what_is_gone_says_what_to_import(line: str, tmp_path: Path) -> None:
    plugin = tmp_path / "mine.py"
    plugin.write_text(f"{line}\n")
    advice = (
        r"what a plugin needs is in gapft_harness\.api \(docs/plugins\.md\); at .*mine\.py, line 1"
    )
    with pytest.raises(api.PluginError, match=f"fails on import: ModuleNotFoundError: .*{advice}"):
        load_plugins([str(plugin)])


def test_other_packages_and_what_python_looks_for_itself_are_left_alone() -> None:
    assert importlib.util.find_spec("no_such_package") is None
    assert importlib.util.find_spec("gapft_harness.__main__") is None
    done = subprocess.run(
        [sys.executable, "-m", "gapft_harness"], capture_output=True, text=True, check=False
    )
    assert "No module named gapft_harness.__main__" in done.stderr
