"""Examples that training or selection would reject are rejected before the search."""

from __future__ import annotations

from pathlib import Path

import pytest

from gapft_harness.cli.dry_run import NOTHING_MISSING, describe_dry_run
from gapft_harness.cli.options import Options
from gapft_harness.cli.runs import resolve_recipe, run_recipe
from gapft_harness.core.errors import UserError
from gapft_harness.hooks.manager import load_plugins
from gapft_harness.lm_eval_bridge.samplers.retokenizer import prompt_lengths
from gapft_harness.recipe.recipe import build_sampler_settings
from gapft_harness.stages.search.data import load_problems


def list_problems(overrides: list[str], recipe: str = "demo") -> str:
    return describe_dry_run(Options(recipe, overrides=overrides), Path("r")).partition(
        "# missing here\n"
    )[2]


def measure_longest_prompt() -> int:
    recipe = resolve_recipe(Options("demo"))
    problems, *_ = load_problems(recipe, "pool", load_plugins(), ())
    return max(prompt_lengths(build_sampler_settings(recipe), problems))


def test_longest_example_must_fit_before_search(tmp_path: Path) -> None:
    """The demo's responses have up to 32 tokens."""
    fits = measure_longest_prompt() + 32
    assert list_problems([f"training.max_length={fits}"]) == NOTHING_MISSING
    short = [f"training.max_length={fits - 1}"]
    message = list_problems(short)
    assert f"training.max_length: {fits} or more" in message
    assert "training.too_long: truncate" in message
    with pytest.raises(UserError, match=r"training\.max_length"):
        run_recipe(Options("demo", overrides=short), tmp_path / "run")
    assert not (tmp_path / "run").exists(), "nothing was generated"
    cut = [*short, "training.too_long=truncate"]
    assert list_problems(cut) == NOTHING_MISSING


def test_rejects_prompts_that_leave_no_response_tokens() -> None:
    none = [f"training.max_length={measure_longest_prompt()}", "training.too_long=truncate"]
    assert "a pool without these problems" in list_problems(none)


def test_conditions_have_their_own_limits() -> None:
    fits = measure_longest_prompt() + 32
    own = ["conditions={gapft: {}, short: {selector: gapft, training: {max_length: 20}}}"]
    assert "in condition 'short'" in list_problems([f"training.max_length={fits}", *own])


def test_rejects_incomparable_golds_before_search(tmp_path: Path) -> None:
    options = Options("demo-code", overrides=[
        "conditions={gapft: {}, gold: {selector: gold_labels}}", "experiments={}",
    ])  # fmt: skip
    message = list_problems([*options.overrides], "demo-code")
    assert "condition 'gold': the gold answer of problem" in message
    with pytest.raises(UserError, match="condition 'gold'"):
        run_recipe(options, tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_gold_targets_are_never_truncated() -> None:
    """Truncation would change the same target beside a longer prompt."""
    short = [
        f"training.max_length={measure_longest_prompt() + 31}", "training.too_long=truncate",
        "conditions={gapft: {}, gold: {selector: gold_labels, params: {answer_only: false}}}",
    ]  # fmt: skip
    assert "in condition 'gold'" in list_problems(short)
