"""Online training by the real command: the control on the demo policy, three updates."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gapft_harness.core.errors import UserError
from gapft_harness.core.records import Arm
from gapft_harness.engine.runner import parse_inputs
from gapft_harness.hooks.manager import load_plugins
from gapft_harness.recipe.bundled import find_recipe
from gapft_harness.recipe.reading import load_recipe
from gapft_harness.run_directory.directory import RunDirectory
from gapft_harness.run_directory.recorded import read_budgets
from gapft_harness.stages.experiment.view import View
from gapft_harness.stages.train.job import build_job
from gapft_harness.stages.train.stage import list_training_steps
from tests.kit.command import gapft, succeed
from tests.kit.plugins import build_plugin
from tests.kit.report_tables import read_results

UPDATES, PROMPTS, SIZE = 3, 8, 8
SMALL = [
    *("--set", "data.pool_limit=40", "--set", "data.audit_limit=20", "--set", "seeds=[13]"),
    *("--set", f"training.update_groups={UPDATES}", "--set", "executor.workers=1"),
    *("--set", f"training.grpo.prompts_per_update={PROMPTS}"),
]

#: The audit's verifier is unchanged; the reward's verifier cannot judge some texts.
MOODY = build_plugin(
    """
from functools import partial


class Moody:
    def __init__(self, **params):
        self._math = load_verifier("boxed_math", **params)
        self.close = self._math.close

    def verify(self, responses, golds):
        verdicts = self._math.verify(responses, golds)
        pairs = zip(responses, verdicts, strict=True)
        return [Verdict("error", "in a mood") if "=" in text else v for text, v in pairs]
""",
    verifiers=[
        '"calm", partial(load_verifier, "boxed_math"), permissive=lambda params: ("moody", params)',
        '"moody", Moody',
    ],
)


@pytest.fixture(scope="module")
def searched_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("grpo")
    stages = [word for name in ("search", "states", "select") for word in ("--only", name)]
    succeed("run", "controls/online", "--run-dir", "run", *SMALL, *stages, cwd=folder)
    return folder / "run"


@pytest.fixture(scope="module")
def run(searched_run: Path) -> Path:
    copy = searched_run.with_name("whole")
    shutil.copytree(searched_run, copy)
    output = " ".join(succeed("run", copy).stderr.split())
    assert "warning: the reward of grpo_all, grpo_masked is math {}, but the audit's" in output
    return copy


def read_lines(run: Path, arm: str, name: str) -> list[dict[str, Any]]:
    path = run / "adapters" / f"{arm}-seed13" / f"{name}.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_arm_makes_configured_number_of_updates(run: Path) -> None:
    budgets = read_budgets(RunDirectory.open(run))
    for arm in ("grpo_all", "grpo_masked"):
        assert budgets[f"{arm}-seed13"]["steps"] == UPDATES
        assert [line["update"] for line in read_lines(run, arm, "updates")] == [1, 2, 3]
        groups = read_lines(run, arm, "groups")
        assert [group["draw"] for group in groups] == [d for d in (1, 2, 3) for _ in range(PROMPTS)]
        assert {len(group["rewards"]) for group in groups} == {SIZE}


def test_conditions_of_seed_draw_same_prompts(run: Path) -> None:
    ids = [
        [group["problem_id"] for group in read_lines(run, arm, "groups")]
        for arm in ("grpo_all", "grpo_masked")
    ]
    assert ids[0] == ids[1]
    assert len(set(ids[0])) == len(ids[0])


def test_masking_changes_only_loss_divisor(run: Path) -> None:
    """The first draw is the same in both arms, so their losses are one sum over two divisors."""
    whole, masked = (
        read_lines(run, arm, "groups")[:PROMPTS] for arm in ("grpo_all", "grpo_masked")
    )
    for plain_group, masked_group in zip(whole, masked, strict=True):
        assert {**masked_group, "masked": False} == plain_group
        assert masked_group["masked"] == (len(set(masked_group["rewards"])) == 1)
    tokens = [sum(group["tokens"]) for group in masked]
    unmasked = [n for n, group in zip(tokens, masked, strict=True) if not group["masked"]]
    assert 0 < len(unmasked) < PROMPTS, "the draw must mask some groups, not all"
    first, second = (read_lines(run, arm, "updates")[0] for arm in ("grpo_all", "grpo_masked"))
    for key in ("loss", "grad_norm"):
        assert first[key] * sum(tokens) == pytest.approx(second[key] * sum(unmasked), rel=1e-5)


def test_online_tables_count_drawn_groups(run: Path) -> None:
    tables = read_results(run)
    costs, drawn = ({r["condition"]: r for r in tables[n]} for n in ("online", "online_drawn"))
    assert list(costs) == ["gapft", "grpo_all", "grpo_masked"]
    assert costs["gapft"]["completion_tokens"] is None
    assert costs["gapft"]["processed_tokens"] > 0
    for arm in ("grpo_all", "grpo_masked"):
        groups, row = read_lines(run, arm, "groups"), costs[arm]
        assert row["completion_tokens"] == sum(sum(group["tokens"]) for group in groups)
        difference = row["pass_at_1"] - costs["gapft"]["pass_at_1"]
        assert row["difference"] == pytest.approx(difference)
        flat = [group for group in groups if len(set(group["rewards"])) == 1]
        row = drawn[arm]
        assert [row[f"flat_{s}"] for s in "GSU"] == [
            sum(group["state"] == s for group in flat) for s in "GSU"
        ]
        assert row["flat_solved_share"] == row["flat_G"] / row["flat"]
        solved, missed = (sum(group["state"] == s for group in groups) for s in "GU")
        assert row["rule_solved_share"] == solved / (solved + missed)
        assert row["masked"] == (len(flat) if arm == "grpo_masked" else 0)
    assert [row["state"] for row in tables["online_search"]] == ["G", "S", "U"]
    assert tables["online_search"][1]["flat"] == pytest.approx(0, abs=0.5)
    assert tables["online_search"][2]["flat"] in (1, None)


def train_masked_arm(run: Path, output: Path, **grpo_changes: Any) -> list[dict[str, Any]]:
    """Train one arm alone without dropout; return the records of its updates."""
    from gapft_harness.training.grpo import train_grpo

    view = View(RunDirectory.open(run), load_plugins(), [Arm("grpo_masked", 13)])
    (step,) = list_training_steps(view)
    call = {**step.settings, **step.operational, **parse_inputs(step.list_paths())}
    job = build_job({**call, "output": output}, view.plugins)
    settings = {**job.settings, "dropout": 0.0, "grpo": {**job.settings["grpo"], **grpo_changes}}
    train_grpo(replace(job, settings=settings, output=output))
    return [json.loads(line) for line in (output / "updates.jsonl").read_text().splitlines()]


def test_micro_batch_does_not_change_updates(searched_run: Path, tmp_path: Path) -> None:
    whole = train_masked_arm(searched_run, tmp_path / "whole")
    cut = train_masked_arm(searched_run, tmp_path / "cut", micro_batch=16)
    for first, second in zip(whole, cut, strict=True):
        assert first["loss"] == pytest.approx(second["loss"], rel=1e-4)
        assert first["grad_norm"] == pytest.approx(second["grad_norm"], rel=1e-4)


def test_kl_term_grows_from_zero(searched_run: Path, tmp_path: Path) -> None:
    updates = train_masked_arm(searched_run, tmp_path / "kl", beta=0.1)
    assert updates[0]["kl"] == 0 < updates[-1]["kl"]
    assert not (tmp_path / "kl" / "ref").exists(), "TRL's copy of the first adapter must not remain"


def test_counts_failing_rewards(searched_run: Path) -> None:
    """The store has the search; verdicts of another verifier are its own."""
    folder = searched_run.parent
    (folder / "moody.py").write_text(MOODY)
    common = [
        *("run", "controls/online", "--run-dir", "moody", *SMALL, "--plugin", "moody.py"),
        *("--set", "verifier.name=calm", "--condition", "grpo_all", "--set", "experiments={}"),
    ]
    done = gapft(*common, cwd=folder)
    assert done.returncode == 1
    assert "training.grpo.max_unjudged" in done.stderr
    succeed(*common, "--set", "training.grpo.max_unjudged=1", cwd=folder)
    groups = read_lines(folder / "moody", "grpo_all", "groups")
    rewards = [reward for group in groups for reward in group["rewards"]]
    assert 0 < rewards.count(None) < len(rewards)
    facts = json.loads((folder / "moody/adapters/grpo_all-seed13/training.json").read_text())
    assert facts["unjudged"] == rewards.count(None)


@pytest.mark.parametrize(
    ("text", "opened", "judged"),
    [
        ("A<end>", False, "A"),
        ("so \\boxed{5}", True, ""),
        ("so</think>5<end>", True, "so</think>5"),
        ("5", False, "5"),
    ],
)
def test_reward_judges_the_text_that_the_audit_judges(text: str, opened: bool, judged: str) -> None:
    from gapft_harness.training.grpo import cut_completion

    assert cut_completion(text, "<end>", opened) == judged


def test_reports_missing_trl(monkeypatch: pytest.MonkeyPatch) -> None:
    from gapft_harness.stages.train import requirements

    recipe, plugins = load_recipe(find_recipe("controls/online")), load_plugins()
    assert requirements.list_missing_packages(recipe, plugins) == []
    for version, state in (("", "it is not"), ("1.0.0", "1.0.0 is")):
        monkeypatch.setattr(requirements, "find_version", lambda package, version=version: version)
        assert requirements.list_missing_packages(recipe, plugins) == [
            f"trainer 'grpo' needs trl>=1.16, but {state} installed; "
            "pip install 'gapft-harness[online]'"
        ]
        with pytest.raises(UserError, match=r"needs trl>=1\.16"):
            requirements.check_packages(recipe, plugins)
