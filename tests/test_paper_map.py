"""docs/recipes.md says where each table and figure of the paper comes from, and it is so."""

from __future__ import annotations

import ast
import re
import shlex
from pathlib import Path

import pytest

from gapft_harness.cli.dry_run import describe
from gapft_harness.cli.options import Options
from gapft_harness.recipe.bundled import bundled_recipes, bundled_studies

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "recipes.md").read_text("utf-8")
#: What the paper has, in its numbering.
TABLES, FIGURES = range(1, 15), range(1, 7)


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


def rows() -> list[list[str]]:
    """The cells of the map's rows."""
    text = PAGE.partition("\n## The paper's tables and figures\n")[2].partition("\n## ")[0]
    lines = re.findall(r"^\| ((?:Table|Figure|Appendix) .*) \|$", text, re.M)
    return [line.split(" | ") for line in lines]


def commands(kind: str) -> list[str]:
    """The arguments of every ``gapft run`` or ``gapft study`` of the map."""
    cells = " ".join(cell for row in rows() for cell in row)
    return sorted(set(re.findall(rf"`gapft {kind} (.*?)`", cells)))


def titles(*rooms: str) -> set[str]:
    """The titles of all sections that rooms make: what ``Section`` is given first in their code.

    Where that is an attribute, as ``Section(self.control.title, …)``, all strings that classes
    of these rooms give an attribute of its name.
    """
    calls, attributes = [], set()
    for file in (file for room in rooms for file in (ROOT / "gapft_harness" / room).rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text("utf-8"))):
            if isinstance(node, ast.Call) and ast.unparse(node.func).endswith("Section"):
                calls.append(node.args[0])
            elif isinstance(node, ast.ClassDef):
                attributes |= {
                    (ast.unparse(line.targets[0]), line.value.value)
                    for line in node.body
                    if isinstance(line, ast.Assign) and isinstance(line.value, ast.Constant)
                }
    named = {of.attr for of in calls if isinstance(of, ast.Attribute)}
    given = {of.value for of in calls if isinstance(of, ast.Constant)}
    found = given | {value for name, value in attributes if name in named}
    return {one for one in found if isinstance(one, str) and one}


def test_every_table_and_figure_has_a_row() -> None:
    named = {re.match(r"[A-Z]\w+ \w+", row[0])[0] for row in rows()}  # type: ignore[index]
    wanted = {f"Table {i}" for i in TABLES} | {f"Figure {i}" for i in FIGURES}
    assert named - {"Appendix A", "Appendix B", "Appendix C"} == wanted


def test_every_section_is_one_of_a_report() -> None:
    known = titles("report", "experiments")
    known |= {f"{title} (study)" for title in titles("study")}
    assert known > {"Settings", "Settings (study)", "Search depth"}
    assert not known & {"gapft", "search_depth", "Pass@1", "condition", "Main comparison"}
    assert {one for row in rows() for one in row[-1].split("; ")} - {"–"} <= known


@pytest.mark.parametrize("command", sorted({*commands("run")} - {name for name, *_ in BUDGETS}))
def test_every_run_of_the_map_resolves(command: str) -> None:
    name, *options = shlex.split(command)
    assert name in bundled_recipes()
    assert set(options[::2]) <= {"--set"}
    assert "# stages" in describe(Options(name, overrides=options[1::2]), None)


def test_every_study_of_the_map_is_there() -> None:
    assert set(commands("study")) <= set(bundled_studies())


def test_every_recipe_at_full_scale_is_in_the_map() -> None:
    bundled = {**bundled_recipes(), **bundled_studies()}
    full = {name for name in bundled if "llama" in name or name.startswith("paper/")}
    cells = set(re.findall(r"recipe: ([\w/-]+)", bundled["paper/main"].read_text("utf-8")))
    told = {command.split()[0] for kind in ("run", "study") for command in commands(kind)}
    assert full - cells - told == set()


@pytest.mark.parametrize(("name", "slots", "exposures", "steps"), BUDGETS)
def test_a_dry_run_that_is_told_n_prints_the_papers_budget(
    name: str, slots: int, exposures: int, steps: int
) -> None:
    text = describe(Options(name, overrides=[f"budget.n={slots}"]), None)
    assert f"; n = {slots}; N = {exposures}; J = {steps}\n" in text


@pytest.mark.parametrize(("name", "slots", "exposures", "steps"), BUDGETS[:6])
def test_a_cells_recipe_says_the_papers_n_and_the_command_that_prints_its_budget(
    name: str, slots: int, exposures: int, steps: int
) -> None:
    text = " ".join(bundled_recipes()[name].read_text("utf-8").replace("\n#", "").split())
    assert f"Table 5 has n = {slots:,}, of the paper's own search" in text
    assert f"N = {exposures:,}, J = {steps:,}." in text
    assert f"gapft run {name} --dry-run --set budget.n={slots} budget:" in text
