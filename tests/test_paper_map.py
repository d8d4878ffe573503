"""The commands of docs/recipes.md's table of the paper resolve, and print Table 5's budgets."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from gapft_harness.cli.dry_run import describe
from gapft_harness.cli.options import Options
from gapft_harness.recipe.bundled import bundled_recipes, bundled_studies

PAGE = (Path(__file__).parents[1] / "docs" / "recipes.md").read_text("utf-8")

#: Table 5: the recipe, n, N and J.
BUDGETS = [
    ("paper/llama-logiqa", 3190, 25520, 1595),
    ("paper/llama-reclor", 913, 7304, 457),
    ("paper/qwen-logiqa", 275, 2200, 138),
    ("paper/qwen-reclor", 63, 504, 32),
    ("paper/mistral-logiqa", 887, 7096, 444),
    ("paper/mistral-reclor", 252, 2016, 126),
    ("controls/llama-logiqa", 3190, 25520, 1595),
    ("controls/llama-reclor", 913, 7304, 457),
    ("controls/llama-logiqa-core", 9575, 76600, 4788),
    ("controls/llama-reclor-core", 3049, 24392, 1525),
    ("controls/llama-reclor-core-added", 913, 7304, 457),
    ("paper/qwen-math", 188, 752, 752),
]


def commands(kind: str) -> set[str]:
    """The arguments of every ``gapft run`` or ``gapft study`` of the table."""
    text = PAGE.partition("\n## The paper's tables and figures\n")[2].partition("\n## ")[0]
    return set(re.findall(rf"`gapft {kind} (.*?)`", text))


@pytest.mark.parametrize("command", sorted(commands("run") - {name for name, *_ in BUDGETS}))
def test_a_documented_run_resolves(command: str) -> None:
    name, *options = shlex.split(command)
    assert name in bundled_recipes()
    assert set(options[::2]) <= {"--set"}
    assert "# stages" in describe(Options(name, overrides=options[1::2]), None)


def test_documented_studies_are_bundled() -> None:
    assert commands("study")
    assert commands("study") <= set(bundled_studies())


@pytest.mark.parametrize(("name", "slots", "exposures", "steps"), BUDGETS)
def test_a_dry_run_prints_the_papers_budget(
    name: str, slots: int, exposures: int, steps: int
) -> None:
    text = describe(Options(name, overrides=[f"budget.n={slots}"]), None)
    assert f"; n = {slots}; N = {exposures}; J = {steps}\n" in text
