"""Online training by the real command: the control on the demo policy, three updates an arm."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gapft_harness.core.errors import UserError
from gapft_harness.core.records import Arm
from gapft_harness.hooks.manager import load_plugins
from gapft_harness.recipe.bundled import find_recipe
from gapft_harness.recipe.reading import load_recipe
from gapft_harness.run_directory.directory import RunDirectory
from gapft_harness.stages.verify.run import verify
from tests.command import gapft, succeed

pytestmark = pytest.mark.xdist_group("grpo")

UPDATES, PROMPTS, SIZE = 3, 8, 8
SMALL = [
    *("--set", "data.pool_limit=40", "--set", "data.audit_limit=20", "--set", "seeds=[13]"),
    *("--set", f"training.update_groups={UPDATES}", "--set", "executor.workers=1"),
    *("--set", f"training.grpo.prompts_per_update={PROMPTS}"),
]

#: The demo's audit judges as ever; the reward's verifier raises on some texts and hangs on others.
MOODY = """
import time

from gapft_harness.api import Verdict, hookimpl
from gapft_harness.plugins.verifiers.boxed_math import BoxedMath


class Moody(BoxedMath):
    def verify(self, responses, golds):
        for text in responses:
            if "{first}" in text:
                raise RuntimeError("in a mood")
            if "{second}" in text:
                time.sleep(60)
        return super().verify(responses, golds)


@hookimpl
def register_verifiers(register):
    register("calm", BoxedMath, permissive=lambda params: ("moody", params))
    register("moody", Moody)
"""


@pytest.fixture(scope="module")
def searched(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("grpo")
    stages = [word for name in ("search", "states", "select") for word in ("--only", name)]
    succeed("run", "controls/online", "--run-dir", "run", *SMALL, *stages, cwd=folder)
    return folder / "run"


@pytest.fixture(scope="module")
def run(searched: Path) -> Path:
    copy = searched.with_name("whole")
    shutil.copytree(searched, copy)
    said = " ".join(succeed("run", copy).stderr.split())
    assert "warning: the reward of grpo_all, grpo_masked is math {}, but the audit's" in said
    return copy


def lines(run: Path, arm: str, name: str) -> list[dict[str, Any]]:
    path = run / "adapters" / f"{arm}-seed13" / f"{name}.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_an_arm_makes_exactly_the_updates_of_its_training_set(run: Path) -> None:
    manifest = json.loads((run / "manifest.json").read_text())
    for arm in ("grpo_all", "grpo_masked"):
        assert manifest["budgets"][f"{arm}-seed13"]["steps"] == UPDATES
        assert [line["update"] for line in lines(run, arm, "updates")] == [1, 2, 3]
        groups = lines(run, arm, "groups")
        assert [group["draw"] for group in groups] == [d for d in (1, 2, 3) for _ in range(PROMPTS)]
        assert {len(group["rewards"]) for group in groups} == {SIZE}


def test_the_report_tells_what_was_drawn_and_not_the_set_that_gives_j(run: Path) -> None:
    results = json.loads((run / "report/results.json").read_text())
    told = results["ledger"]["conditions"]
    for arm in ("grpo_all", "grpo_masked"):
        drawn = sum(sum(group["tokens"]) for group in lines(run, arm, "groups"))
        assert told[arm]["training_tokens"] == drawn
    budget = results["conditions"]["gapft"]["seeds"]["13"]["budget"]
    assert told["gapft"]["training_tokens"] == budget["L"]
    page = " ".join((run / "report/report.md").read_text("utf-8").split())
    assert "GRPO all and GRPO masked: trained online." in page


def test_both_conditions_of_a_seed_draw_for_the_same_prompts(run: Path) -> None:
    ids = [
        [group["problem_id"] for group in lines(run, arm, "groups")]
        for arm in ("grpo_all", "grpo_masked")
    ]
    assert ids[0] == ids[1]
    assert len(set(ids[0])) == len(ids[0])


def test_masking_changes_the_divisor_of_the_loss_and_nothing_else(run: Path) -> None:
    """The first draw is the same in both, so the losses are those of one sum over two divisors."""
    whole, masked = (lines(run, arm, "groups")[:PROMPTS] for arm in ("grpo_all", "grpo_masked"))
    for one, other in zip(whole, masked, strict=True):
        assert {**other, "masked": False} == one
        assert other["masked"] == (len(set(other["rewards"])) == 1)
    tokens = [sum(group["tokens"]) for group in masked]
    kept = [n for n, group in zip(tokens, masked, strict=True) if not group["masked"]]
    assert 0 < len(kept) < PROMPTS, "no law: nothing, or everything, is masked"
    first, second = (lines(run, arm, "updates")[0] for arm in ("grpo_all", "grpo_masked"))
    for key in ("loss", "grad_norm"):
        assert first[key] * sum(tokens) == pytest.approx(second[key] * sum(kept), rel=1e-5)


def test_what_was_drawn_and_masked_is_verified(run: Path, tmp_path: Path) -> None:
    found = verify(run)
    assert found.differences == []
    copy = tmp_path / "run"
    shutil.copytree(run, copy)
    path = copy / "adapters" / "grpo_masked-seed13" / "groups.jsonl"
    path.write_text(path.read_text().replace('"masked": true', '"masked": false', 1))
    said = [line for line in verify(copy).differences if "groups.jsonl, line" in line]
    assert len(said) == 1
    assert "masked is False, computed again it is True" in said[0]


def test_the_report_has_the_papers_table(run: Path) -> None:
    page = (run / "report" / "report.md").read_text()
    assert "## Online training at equal updates" in page
    assert (
        "| condition | Pass@1 | Δ vs GapFT | other rule | Δ by it | invalid | open right |" in page
    )
    results = json.loads((run / "report" / "results.json").read_text())["online"]
    by_name = {row["condition"]: row for row in results["drawn"]}
    assert by_name["gapft"]["completion_tokens"] is None
    assert by_name["gapft"]["processed_tokens"] > 0
    for arm in ("grpo_all", "grpo_masked"):
        groups = lines(run, arm, "groups")
        row = by_name[arm]
        assert row["completion_tokens"] == sum(sum(group["tokens"]) for group in groups)
        flat = [group for group in groups if len(set(group["rewards"])) == 1]
        assert [row[f"flat_{s}"] for s in "GSU"] == [
            sum(group["state"] == s for group in flat) for s in "GSU"
        ]
        assert row["masked"] == (len(flat) if arm == "grpo_masked" else 0)
    assert [row["state"] for row in results["search"]] == ["G", "S", "U"]
    assert results["search"][1]["flat"] == pytest.approx(0, abs=0.5)
    assert results["search"][2]["flat"] in (1, None)


def test_a_killed_arm_starts_again_and_gives_the_same_bytes(
    run: Path, searched: Path, tmp_path: Path
) -> None:
    copy = tmp_path / "run"
    shutil.copytree(searched, copy)
    words = [sys.executable, "-m", "gapft_harness.cli.main", "run", str(copy), "--only", "train"]
    command = subprocess.Popen(words, start_new_session=True, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 300
    while not (copy / "adapters" / "grpo_all-seed13").exists():
        assert command.poll() is None, "it ended before it could be killed"
        assert time.monotonic() < deadline
        time.sleep(0.05)
    os.killpg(command.pid, signal.SIGKILL)  # the next arm has begun
    command.wait()
    assert not (copy / "adapters" / "grpo_masked-seed13").exists()
    succeed("run", copy, "--only", "train")

    def hashes(of: Path) -> dict[str, str]:
        folder = of / "adapters" / "grpo_masked-seed13"
        return {f.name: hashlib.sha256(f.read_bytes()).hexdigest() for f in folder.iterdir()}

    assert hashes(copy) == hashes(run)


def trained(run: Path, output: Path, **own: Any) -> list[dict[str, Any]]:
    """What an arm tells of its updates if it is trained by itself, without dropout."""
    from gapft_harness.stages.train.job import _build_job, build_tracking, read_searched_pool
    from gapft_harness.training.grpo import train_grpo

    opened, plugins, arm = RunDirectory.open(run), load_plugins(), Arm("grpo_masked", 13)
    job = _build_job(
        opened, arm, lambda done, total: None, build_tracking(opened, arm, plugins), False,
        read_searched_pool(opened, plugins, ()),
    )  # fmt: skip
    settings = {**job.settings, "dropout": 0.0, "grpo": {**job.settings["grpo"], **own}}
    train_grpo(replace(job, settings=settings, output=output))
    return [json.loads(line) for line in (output / "updates.jsonl").read_text().splitlines()]


def test_how_an_update_is_cut_into_passes_changes_nothing(searched: Path, tmp_path: Path) -> None:
    whole = trained(searched, tmp_path / "whole")
    cut = trained(searched, tmp_path / "cut", micro_batch=16)
    for one, other in zip(whole, cut, strict=True):
        assert one["loss"] == pytest.approx(other["loss"], rel=1e-4)
        assert one["grad_norm"] == pytest.approx(other["grad_norm"], rel=1e-4)


def test_the_kl_term_grows_from_zero(searched: Path, tmp_path: Path) -> None:
    told = trained(searched, tmp_path / "kl", beta=0.1)
    assert told[0]["kl"] == 0 < told[-1]["kl"]
    assert not (tmp_path / "kl" / "ref").exists(), "TRL's copy of the first adapter is none of ours"


def test_episodes_of_several_attempts_are_refused_before_the_search() -> None:
    done = gapft(
        *("run", "demo-code", "--dry-run", "--set", "training.trainer=grpo"),
        *("--set", "experiments={}"),
    )
    assert done.returncode == 2
    assert "can reward only the first attempt, but the task's episode.attempts is" in " ".join(
        done.stderr.split()
    )


def test_an_update_of_flat_groups_counts(searched: Path, tmp_path: Path) -> None:
    """Near temperature 0 all responses of a group are the same."""
    shutil.copytree(searched, tmp_path / "run")
    succeed(
        *("run", "controls/online", "--run-dir", "run", *SMALL, "--condition", "grpo_masked"),
        *("--set", "training.grpo.temperature=0.01", "--set", "experiments={}"),
        cwd=tmp_path,
    )
    facts = json.loads((tmp_path / "run/adapters/grpo_masked-seed13/training.json").read_text())
    assert facts["updates"] == UPDATES == facts["empty_draws"]


def test_a_reward_that_raises_or_hangs_is_none_and_counted(tmp_path: Path) -> None:
    (tmp_path / "moody.py").write_text(MOODY.format(first="=", second="no such text"))
    common = [
        *("run", "controls/online", "--run-dir", "run", *SMALL, "--plugin", "moody.py"),
        *("--set", "verifier.name=calm", "--condition", "grpo_all", "--set", "experiments={}"),
        *("--set", "training.grpo.reward_seconds=2"),
    ]
    done = gapft(*common, cwd=tmp_path)
    assert done.returncode == 1
    assert "training.grpo.max_unjudged" in done.stderr
    succeed(*common, "--set", "training.grpo.max_unjudged=1", cwd=tmp_path)
    groups = lines(tmp_path / "run", "grpo_all", "groups")
    rewards = [reward for group in groups for reward in group["rewards"]]
    assert 0 < rewards.count(None) < len(rewards)
    facts = json.loads((tmp_path / "run/adapters/grpo_all-seed13/training.json").read_text())
    assert facts["unjudged"] == rewards.count(None)


def test_a_hanging_verifier_is_ended(tmp_path: Path) -> None:
    from functools import partial

    from gapft_harness.hooks.protocols import TaskVerifier
    from gapft_harness.training.rewards import Rewards

    plugin = tmp_path / "moody.py"
    plugin.write_text(MOODY.format(first="oops", second="zzz"))
    load = partial(load_plugins([str(plugin)]).create_verifier, "moody", {})
    verifier = TaskVerifier("moody", {}, load, files=[str(plugin)])
    with Rewards(verifier, seconds=1.0) as rewards:
        right, wrong = "\\boxed{7}", "\\boxed{8}"
        given = rewards.judge_groups([([right, "zzz", "oops", wrong], "7"), ([wrong, right], "8")])
    assert given == [[1.0, None, None, 0.0], [1.0, 0.0]]


def test_a_recipe_without_a_permissive_rule_is_refused_before_training(tmp_path: Path) -> None:
    done = gapft(
        *("run", "controls/online", "--run-dir", "run", *SMALL, "--dry-run"),
        *("--set", "verifier.name=math", "--set", "experiments={}"),
        cwd=tmp_path,
    )
    assert done.returncode == 2
    assert "is permissive, but the verifier math declares" in done.stderr


def test_a_machine_without_trl_is_told_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    from gapft_harness.stages.train import job

    recipe, plugins = load_recipe(find_recipe("controls/online")), load_plugins()
    assert job.list_missing_packages(recipe, plugins) == []
    for version, there in (("", "it is not"), ("1.0.0", "1.0.0 is")):
        monkeypatch.setattr(job, "find_version", lambda package, version=version: version)
        assert job.list_missing_packages(recipe, plugins) == [
            f"trainer 'grpo' needs trl>=1.16, but {there} installed; "
            "pip install 'gapft-harness[online]'"
        ]
        with pytest.raises(UserError, match=r"needs trl>=1\.16"):
            job.check_trackers(recipe, plugins)


@pytest.mark.parametrize(
    ("own", "said"),
    [
        (
            "experiments.online.reference=gapt",
            "'gapt' is not a condition of the recipe; did you mean 'gapft'?",
        ),
        ("conditions=[gapft,uniform]", "no condition besides the reference is trained by grpo"),
    ],
)
def test_an_experiment_that_compares_nothing_is_refused(own: str, said: str) -> None:
    done = gapft("run", "controls/online", "--dry-run", "--set", own)
    assert done.returncode == 2
    assert said in " ".join(done.stderr.split())
