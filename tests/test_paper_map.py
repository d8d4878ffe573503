"""The map from the paper to recipes, and the documented commands with the budgets of Table 5."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import pytest

from gapft_harness.cli.dry_run import describe_dry_run
from gapft_harness.cli.options import Options
from gapft_harness.cli.reference import build_paper_page
from gapft_harness.experiments.online import OnlinePart, OnlineRead
from gapft_harness.experiments.scope import ScopePart, ScopeRead
from gapft_harness.recipe.bundled import list_bundled_recipes, list_bundled_studies
from gapft_harness.recipe.reading import load_recipe
from gapft_harness.report.findings.computation import compute_findings
from gapft_harness.report.reading.audits import VALID, OtherRule
from gapft_harness.report.reading.inputs import PASS, LoadedPart, ReportInputs
from gapft_harness.report.reading.published import PublishedValue, list_published
from gapft_harness.report.results import build_results
from gapft_harness.report.sections.paper import collect_figures
from gapft_harness.study.recipe import read_study
from gapft_harness.training.groups import Group
from tests.report import planted

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


def find_commands() -> set[str]:
    """Return the arguments of every ``gapft run`` in the table."""
    text = PAGE.partition("\n## The paper's tables and figures\n")[2].partition("\n## ")[0]
    return set(re.findall(r"`gapft run (.*?)`", text))


@pytest.mark.parametrize(
    "command", sorted(find_commands() - {name for name, *_ in BUDGETS} - {*list_bundled_studies()})
)
def test_documented_runs_resolve(command: str) -> None:
    name, *options = shlex.split(command)
    assert name in list_bundled_recipes()
    assert set(options[::2]) <= {"--set"}
    assert "# stages" in describe_dry_run(Options(name, overrides=options[1::2]), None)


def test_bundled_studies_are_documented() -> None:
    assert set(list_bundled_studies()) <= find_commands()


@pytest.mark.parametrize(("name", "slots", "exposures", "steps"), BUDGETS)
def test_dry_run_prints_the_papers_budget(
    name: str, slots: int, exposures: int, steps: int
) -> None:
    text = describe_dry_run(Options(name, overrides=[f"budget.n={slots}"]), None)
    assert f"; n = {slots}; N = {exposures}; J = {steps}\n" in text


def read_map() -> dict[str, dict[str, list[str]]]:
    """Return the cells of each row by table or figure, then by recipe."""
    places: dict[str, dict[str, list[str]]] = {}
    for section in build_paper_page().split("\n## ")[1:]:
        place, _, text = section.partition("\n")
        rows = [line.strip("| ").split(" | ") for line in text.splitlines() if line[:3] == "| `"]
        places[place] = {row[0].strip("`"): row[1:] for row in rows}
    return places


def test_maps_every_table_and_figure() -> None:
    expected = {f"Table {n}" for n in range(1, 15)} | {f"Figure {n}" for n in range(1, 7)}
    places = read_map()
    expected |= {"Section 4.2", "Appendix A", "Appendix B", "Appendix C"}
    assert expected == set(places)
    assert {place for place, rows in places.items() if not rows} == {"Figure 1", "Table 9"}
    mapped_recipes = {recipe for rows in places.values() for recipe in rows}
    assert {name for name in list_bundled_recipes() if name.startswith("paper/")} <= mapped_recipes


def test_map_matches_recipes_and_commands() -> None:
    places = read_map()
    for name, file in list_bundled_recipes().items():
        for figure in list_published(load_recipe(file).model_dump(mode="json")):
            keys, values, _ = places[figure.table][name]
            assert f"`{figure.results_key}`" in keys
            assert (
                f"{figure.subject}.{figure.quantity} {figure.format_value(figure.printed)}"
                in values
            )
    text = PAGE.partition("\n## The paper's tables and figures\n")[2].partition("\n## ")[0]
    for line in text.splitlines():
        place, *_ = re.findall(r"^\| ((?:Table|Figure|Appendix) \w+)", line) or [""]
        cells = line.strip("| ").split(" | ")
        for name in re.findall(r"`gapft run ([^` ]+)", cells[2]) if place else ():
            assert name in places[place], (place, name)
            if name in list_bundled_studies():
                cells_of_study = [r for r in places[place].values() if f"study `{name}`" in r[0]]
                assert len(cells_of_study) == len(read_study(name).cells), (place, name)


def test_map_has_means_of_the_study() -> None:
    places = read_map()
    for place, key in (("Table 1", "`means.*.delta`"), ("Section 4.2", "`means.*.ci95`")):
        keys, values, _ = places[place]["paper/main"]
        assert key in keys
        assert "gapft minus " in values
    assert "gold_again minus gold.changed 331" in places["Appendix A"]["controls/llama-logiqa"][1]


#: Figures of every quantity, by the numbers of the planted run.
FIGURES = (
    "gapft.pass_at_1", "gapft.kappa_S", "gapft.rho_G", "gapft.k_eq", "gapft.n", "gapft.exposures",
    "gapft.tokens", "gapft.supervised_tokens", "gapft.steps", "gapft minus uniform.delta",
    "gapft minus uniform.S", "gapft minus uniform.U", "gapft minus uniform.G",
    "gapft minus uniform.ci95_low", "gapft minus uniform.ci95_high", "gapft minus source.delta",
    "uniform minus gapft.changed", "source.other_rule_pass_at_1", "gapft.other_rule_pass_at_1",
    "gapft.invalid", "gapft minus uniform.other_rule_delta",
    "gapft minus uniform.other_rule_ci95_high", "gapft.kappa_S@8", "gapft.net_gain@8",
    "uniform.flat_solved_share",
)  # fmt: skip


#: The paper's symbols for a budget, which are the keys of results.json.
SYMBOLS = {
    "n": "n", "exposures": "N", "tokens": "L", "supervised_tokens": "L_supervised", "steps": "J",
}  # fmt: skip


def build_planted_inputs() -> ReportInputs:
    """Build a run that has every quantity: repeated training, another rule, scope and GRPO."""
    inputs = replace(planted.build_replicate_inputs(), pool_recovered=(3,))
    # without time-outs, which the verifier audit leaves out and a Pass@1 counts
    passing = np.where(inputs.audit.deployed.passed, PASS, planted.FAIL).astype(np.uint8)
    inputs = replace(inputs, audit=planted.replace_decodes(inputs.audit, statuses=passing))
    rule = OtherRule(
        "other",
        source=passing,
        arms={trained.arm.name: trained.deployed.statuses for trained in inputs.arms},
        answer_codes={
            name: np.full_like(passing, VALID)
            for name in ("", *(trained.arm.name for trained in inputs.arms))
        },
    )
    scope = ScopeRead({trained.arm: trained.deployed.passed for trained in inputs.arms}, None, "")
    groups = [[Group(1, "p", "G", (1.0, 1.0), (1, 1), True)]] * 3
    parts = (
        LoadedPart(ScopePart(), scope),
        LoadedPart(OnlinePart(), OnlineRead("gapft", {"uniform": groups}, ())),
    )
    paper = {"Table 1": dict.fromkeys(FIGURES, 1)}
    recipe = {**inputs.recipe, "experiments": {"scope": {"k": [8]}}, "paper": paper}
    return replace(inputs, other_rule=rule, parts=parts, recipe=recipe)


def read_value(content: Any, figure: PublishedValue) -> Any:
    """Read a figure's value in results.json, at its key."""
    for key in figure.results_key.split("."):
        if key != "*":
            content = content[key]
        elif isinstance(content, dict) and set(content) == {"13", "21", "73"}:
            return fmean(seed["budget"][SYMBOLS[figure.name]] for seed in content.values())
        elif isinstance(content, dict):
            content = content[figure.subject]
        else:
            content = next(row for row in content if {*figure.conditions} <= {*list_names(row)})
    if isinstance(content, list):
        return content[figure.name.endswith("high")]
    return content[figure.name] if isinstance(content, dict) else content


def list_names(row: Mapping[str, Any]) -> list[Any]:
    """List the conditions that a row of results.json is about."""
    return [row.get(key) for key in ("a", "b", "condition", "original")]


def test_figures_beside_the_papers_are_those_of_the_results() -> None:
    inputs = build_planted_inputs()
    findings = compute_findings(inputs)
    content = json.loads(json.dumps(build_results(inputs, findings)))
    figures = collect_figures(inputs, findings)
    assert [f"{figure.subject}.{figure.quantity}" for figure in figures] == list(FIGURES)
    for figure in figures:
        value = read_value(content, figure)
        if figure.name == "k_eq":
            assert figure.format_value(figure.measured or 0).strip("≥") == value
        elif figure.name == "changed":
            assert figure.measured == pytest.approx(value / 3)
        else:
            factor = 1 if figure.is_count else 100
            assert figure.measured == pytest.approx(factor * value), figure.results_key


def test_search_figures_have_a_key_in_results() -> None:
    inputs = build_planted_inputs()
    content = build_results(inputs, compute_findings(inputs))
    for name in (
        *("pool.solved", "pool.recovered@1", "pool.verified@8", "audit.greedy", "audit.pass@4"),
        *("audit.missed@8", "pool.G_of_GU@8"),
    ):
        subject, _, quantity = name.rpartition(".")
        value: Any = content
        for key in PublishedValue("Table 1", subject, quantity, 1.0).results_key.split("."):
            value = value[key]
        assert value is not None
