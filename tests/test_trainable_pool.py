"""What training or selection would refuse after a search is refused before it."""

from __future__ import annotations

from pathlib import Path

import pytest

from gapft_harness.cli.dry_run import NOTHING_MISSING, describe_dry_run
from gapft_harness.cli.options import Options
from gapft_harness.cli.runs import resolve_recipe, run_recipe
from gapft_harness.core.errors import UserError
from gapft_harness.core.records import Problem
from gapft_harness.hooks.manager import load_plugins
from gapft_harness.lm_eval_bridge.samplers.retokenizer import prompt_lengths
from gapft_harness.recipe.recipe import build_sampler_settings
from gapft_harness.stages.search.data import load_problems
from gapft_harness.stages.search.trainable import NotTrainable, check_trainable


def missing(overrides: list[str], recipe: str = "demo") -> str:
    return describe_dry_run(Options(recipe, overrides=overrides), "r").partition(
        "# missing here\n"
    )[2]


def longest_prompt() -> int:
    recipe = resolve_recipe(Options("demo"))
    problems, *_ = load_problems(recipe, "pool", load_plugins(), ())
    return max(prompt_lengths(build_sampler_settings(recipe), problems))


def test_prompt_and_longest_response_must_fit_before_the_search(tmp_path: Path) -> None:
    """The demo's responses have up to 32 tokens."""
    fits = longest_prompt() + 32
    assert missing([f"training.max_length={fits}"]) == NOTHING_MISSING
    short = [f"training.max_length={fits - 1}"]
    said = missing(short)
    assert f"training.max_length: {fits} or more" in said
    assert "training.too_long: truncate" in said
    with pytest.raises(UserError, match=r"training\.max_length"):
        run_recipe(Options("demo", overrides=short), str(tmp_path / "run"))
    assert not (tmp_path / "run").exists(), "nothing was generated"
    cut = [*short, "training.too_long=truncate"]
    assert missing(cut) == NOTHING_MISSING


def test_a_prompt_that_leaves_no_room_is_refused_by_either_policy() -> None:
    none = [f"training.max_length={longest_prompt()}", "training.too_long=truncate"]
    assert "a pool without these problems" in missing(none)


def test_every_condition_has_its_own_limit_and_start_tokens() -> None:
    fits = longest_prompt() + 32
    own = ["conditions={gapft: {}, short: {selector: gapft, training: {max_length: 20}}}"]
    assert "in condition 'short'" in missing([f"training.max_length={fits}", *own])
    recipe = resolve_recipe(
        Options(
            "demo",
            overrides=[
                f"training.max_length={fits}", "model.start_tokens=1", "training.start_tokens=2",
            ],
        )
    )  # fmt: skip
    plugins = load_plugins()
    problems, task, *_ = load_problems(recipe, "pool", plugins, ())
    with pytest.raises(NotTrainable):
        check_trainable(recipe, plugins, problems, task)


def test_gold_labels_targets_are_never_cut() -> None:
    """A cut would make the same target another one beside a longer prompt."""
    short = [
        f"training.max_length={longest_prompt() + 31}", "training.too_long=truncate",
        "conditions={gapft: {}, gold: {selector: gold_labels, params: {answer_only: false}}}",
    ]  # fmt: skip
    assert "in condition 'gold'" in missing(short)


def test_golds_that_cannot_be_compared_are_refused_before_the_search(tmp_path: Path) -> None:
    asked = Options("demo-code", overrides=[
        "conditions={gapft: {}, gold: {selector: gold_labels}}", "experiments={}",
    ])  # fmt: skip
    said = missing([*asked.overrides], "demo-code")
    assert "condition 'gold': the gold answer of problem" in said
    with pytest.raises(UserError, match="condition 'gold'"):
        run_recipe(asked, str(tmp_path / "run"))
    assert not (tmp_path / "run").exists()


def test_a_sampler_without_a_tokenizer_is_not_asked() -> None:
    recipe = resolve_recipe(
        Options("demo", overrides=["model.backend=dummy", "training.max_length=2"])
    )
    task = {"episode": {"attempts": 1}, "decoding": {"max_gen_toks": 32}}
    check_trainable(recipe, load_plugins(), [Problem("p", "a long prompt", "1")], task)


def test_a_model_without_a_tokenizer_is_the_users_mistake(tmp_path: Path) -> None:
    recipe = resolve_recipe(Options("demo", model_args=f"pretrained={tmp_path}"))
    task = {"episode": {"attempts": 1}, "decoding": {"max_gen_toks": 32}}
    with pytest.raises(UserError, match="tokenizer"):
        check_trainable(recipe, load_plugins(), [Problem("p", "x", "1")], task)
