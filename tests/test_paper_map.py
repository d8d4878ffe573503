"""The page docs/paper.md: its map to recipes, their values, and their budgets of Table 5."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from statistics import fmean

import numpy as np
import pytest
import yaml

from gapft_harness.cli.dry_run import describe_dry_run
from gapft_harness.cli.options import Options
from gapft_harness.experiments.online import OnlineExperiment, OnlineRead
from gapft_harness.experiments.scope import ScopeExperiment, ScopeRead, ScopeSettings
from gapft_harness.recipe.bundled import list_bundled_recipes, list_bundled_studies
from gapft_harness.recipe.reading import load_recipe
from gapft_harness.report.reading.audits import VALID, OtherVerdicts
from gapft_harness.report.reading.columns import PASS
from gapft_harness.report.reading.inputs import LoadedExperiment, ReportInputs
from gapft_harness.study.recipe import read_study
from gapft_harness.training.groups import Group
from tests.kit.report_tables import build_results, find_row
from tests.report import planted

PAGE = (Path(__file__).parents[1] / "docs" / "paper.md").read_text("utf-8")
MAP = PAGE.partition("\n## Recipes of tables and figures\n")[2].partition("\n### ")[0]

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


def read_map() -> dict[str, list[str]]:
    """Return the recipes and studies of each table, figure, section or appendix, with options."""
    places: dict[str, list[str]] = {}
    for line in MAP.splitlines():
        if line.startswith("| ") and "`" in line:
            first, full, small, _ = line.strip("| ").split(" | ")
            for place in re.findall(r"(?:Table|Figure|Section|Appendix) [\w.]+", first):
                places.setdefault(place, []).extend(re.findall(r"`(.+?)`", full + small))
    return places


def list_runs() -> list[str]:
    """Return every recipe of the map with its options, without studies and those of Table 5."""
    runs = {run for place in read_map().values() for run in place}
    return sorted(runs - {name for name, *_ in BUDGETS} - {*list_bundled_studies()})


@pytest.mark.parametrize("command", list_runs())
def test_documented_runs_resolve(command: str) -> None:
    name, *options = shlex.split(command)
    assert name in list_bundled_recipes()
    assert set(options[::2]) <= {"--set"}
    assert "# conditions" in describe_dry_run(Options(name, overrides=options[1::2]), None)


def test_map_has_every_table_and_figure() -> None:
    places = {f"Table {n}" for n in range(1, 15)} | {f"Figure {n}" for n in range(1, 7)}
    places |= {"Section 4.2", "Appendix A", "Appendix B", "Appendix C"}
    not_computed = {"Table 9", "Figure 1"}
    assert {*read_map()} == places - not_computed
    assert all(place in MAP for place in not_computed)


def list_papers() -> dict[str, Iterable[str]]:
    """Return the tables and figures of each recipe and study with a section ``paper``."""
    papers: dict[str, Iterable[str]] = {
        name: load_recipe(file).paper for name, file in list_bundled_recipes().items()
    }
    return papers | {name: read_study(name).paper for name in list_bundled_studies()}


def test_map_names_every_recipe_with_a_paper_section() -> None:
    """A row names the recipe itself, or a study that has it as a cell."""
    places = read_map()
    cells = {
        name: {str(cell.recipe) for cell in read_study(name).cells.values()}
        for name in list_bundled_studies()
    }
    missing = []
    for name, paper in list_papers().items():
        holders = {name, *(study for study, members in cells.items() if name in members)}
        missing += [(name, place) for place in paper if not holders & {*places[place]}]
        assert not paper or f"`{name}`" in MAP
    assert missing == []
    assert len([paper for paper in list_papers().values() if paper]) > 20


@pytest.mark.parametrize(("name", "slots", "exposures", "steps"), BUDGETS)
def test_dry_run_prints_the_papers_budget(
    name: str, slots: int, exposures: int, steps: int
) -> None:
    text = describe_dry_run(Options(name, overrides=[f"budget.n={slots}"]), None)
    assert f" n = {slots}; N = {exposures}; J = {steps}\n" in text


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


def build_planted_inputs() -> ReportInputs:
    """Build a run that has every quantity: repeated training, another rule, scope and GRPO."""
    inputs = replace(planted.build_replicate_inputs(), pool_recovered=(3,))
    # without time-outs, which the verifier audit leaves out and a Pass@1 counts
    passing = np.where(inputs.audit.deployed.passed, PASS, planted.FAIL).astype(np.uint8)
    inputs = replace(inputs, audit=planted.replace_decodes(inputs.audit, statuses=passing))
    statuses = {trained.arm.name: trained.deployed.statuses for trained in inputs.arms}
    statuses["source"] = passing
    answers = {name: np.full_like(passing, VALID) for name in statuses}
    rule = OtherVerdicts("other", statuses=statuses, answer_codes=answers)
    decisions = {trained.arm: trained.deployed.passed for trained in inputs.arms}
    scope = ScopeRead(ScopeSettings(k=(8,)), decisions, None)
    groups = [[Group(1, "p", "G", (1.0, 1.0), (1, 1), True)]] * 3
    experiments = (
        LoadedExperiment(ScopeExperiment(), scope),
        LoadedExperiment(OnlineExperiment(), OnlineRead("gapft", {"uniform": groups}, ())),
    )
    paper = {"Table 1": dict.fromkeys(FIGURES, 1)}
    recipe = {**inputs.recipe, "paper": paper}
    return replace(inputs, other_rule=rule, experiments=experiments, recipe=recipe)


def test_figures_beside_the_papers_are_those_of_the_results() -> None:
    inputs = build_planted_inputs()
    results = build_results(inputs)
    rows = {f"{row['of']}.{row['figure']}": row["here"] for row in results["paper"]}
    assert list(rows) == list(FIGURES)
    gapft = find_row(results["conditions"], condition="gapft")
    states = find_row(results["decomposition"], condition="gapft")
    seeds = [row for row in results["seeds"] if row["condition"] == "gapft"]
    pair = find_row(results["contrasts"], a="gapft", b="uniform")
    rule = find_row(results["other_rule"], model="gapft")
    judged = find_row(results["other_rule_contrasts"], a="gapft", b="uniform")
    shares = {
        "gapft.pass_at_1": gapft["pass_at_1"],
        "gapft.kappa_S": states["kappa_S"],
        "gapft.rho_G": states["rho_G"],
        "gapft minus uniform.delta": pair["delta"],
        "gapft minus uniform.U": pair["term_U"],
        "gapft minus uniform.ci95_low": pair["delta_low"],
        "gapft minus uniform.ci95_high": pair["delta_high"],
        "gapft minus source.delta": gapft["change"],
        "gapft.other_rule_pass_at_1": rule["other_rule"],
        "gapft.invalid": rule["invalid_share"],
        "gapft minus uniform.other_rule_delta": judged["other_rule"],
        "gapft minus uniform.other_rule_ci95_high": judged["other_rule_high"],
        "gapft.kappa_S@8": states["kappa_S"],
        "uniform.flat_solved_share": 1.0,
    }
    for name, value in shares.items():
        assert rows[name] == pytest.approx(100 * value), name
    counts = {
        "gapft.k_eq": int(gapft["K_eq"]),
        "gapft.n": seeds[0]["slots"],
        "gapft.tokens": fmean(row["tokens"] for row in seeds),
        "gapft.steps": seeds[0]["steps"],
        "uniform minus gapft.changed": fmean(row["changed"] for row in results["replicates"]),
    }
    for name, value in counts.items():
        assert rows[name] == pytest.approx(value), name
    reversed_pair = {"Table 1": {"uniform minus gapft.delta": 1, "uniform minus gapft.ci95_low": 1}}
    recipe = {**inputs.recipe, "paper": reversed_pair}
    delta, low = (row["here"] for row in build_results(replace(inputs, recipe=recipe))["paper"])
    assert (delta, low) == pytest.approx((-100 * pair["delta"], -100 * pair["delta_high"]))


# What the paper leaves open


def read_sections() -> dict[str, list[list[str]]]:
    """Return the table rows of each subsection on what the paper leaves open, as cells."""
    text = PAGE.partition("\n## What the paper leaves open\n")[2]
    tables = {}
    for part in re.split(r"^### ", text, flags=re.MULTILINE)[1:]:
        lines = [line for line in part.splitlines() if line.startswith("| ")]
        rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
        tables[part.splitlines()[0]] = rows[1:]
    return tables


def find_recipes(section: str) -> list[str]:
    """Return the names of the paper's recipes that a section describes."""
    names = [name for name in list_bundled_recipes() if name.startswith("paper/")]
    code = [name for name in names if name.endswith("livecodebench")]
    math = [name for name in names if "math" in name]
    return {
        "All experiments": names,
        "LogiQA 2.0 and ReClor": [name for name in names if name not in (*code, *math)],
        "MATH": math,
        "Code": code,
    }.get(section, [])


def test_documented_values_match_paper_recipes() -> None:
    compared = 0
    for section, rows in read_sections().items():
        for row in rows:
            for key, value in re.findall(r"`([a-z_]+\.[a-z_]+): (.+?)`", row[2]):
                assert find_recipes(section), section
                for name in find_recipes(section):
                    recipe = load_recipe(list_bundled_recipes()[name]).model_dump(mode="json")
                    head, tail = key.split(".")
                    assert recipe[head][tail] == yaml.safe_load(value), (name, key)
                    compared += 1
    assert compared > 80
