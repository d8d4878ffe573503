"""The paper's values, compared with a search and a report; expected values by hand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from gapft_harness.cli.dry_run import describe_dry_run
from gapft_harness.cli.options import Options
from gapft_harness.recipe.bundled import list_bundled_recipes
from gapft_harness.recipe.reading import check_recipe, load_recipe
from gapft_harness.report.reading.published import (
    PublishedValue,
    describe_differences,
    list_published,
    measure_search,
    parse_published,
)
from gapft_harness.run_directory import layout
from gapft_harness.study.recipe import read_study
from tests.analysis.paper_tables import AMORTIZATION, SCOPE
from tests.kit.command import call
from tests.kit.letters import CONTAINS, write_letters
from tests.kit.recording_run import IN_PROCESS_PLUGIN

#: The greedy decode and four samples of six problems: a and b are solved; c is recovered by the
#: first sample, d and e by the third, f by none. The second and fourth samples of a pass.
VERDICTS = {"a": "10101", "b": "10000", "c": "01010", "d": "00011", "e": "00010", "f": "00000"}


def write_responses(path: Path, verdicts: dict[str, str], split: str = "pool") -> None:
    rows = [
        (name, index - 1, "pass" if outcome == "1" else "fail", outcome)
        for name, outcomes in verdicts.items()
        for index, outcome in enumerate(outcomes)
    ]
    names = ("problem_id", "index", "status", "answer")
    table = pa.table({name: [row[i] for row in rows] for i, name in enumerate(names)})
    (path / layout.responses_path(split)).parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(table, path / layout.responses_path(split))


def build_recipe(paper: dict[str, dict[str, float]], **more: Any) -> dict[str, Any]:
    content = {
        "name": "r",
        "data": {"task": "t", **more.pop("data", {})},
        "model": {"args": {"pretrained": "m"}},
        "search": {"k": 4},
        "paper": paper,
        **more,
    }
    return check_recipe(content, "x").model_dump(mode="json")


def test_measures_search_figures_correctly(tmp_path: Path) -> None:
    counts = {
        "pool.solved": 2, "pool.recovered@1": 1, "pool.recovered@2": 1, "pool.recovered@3": 3,
        "pool.recovered@4": 3, "pool.missed@1": 3, "pool.missed@4": 1, "pool.verified@1": 3,
        "pool.verified@4": 5, "pool.G_of_GU@1": 40,
    }  # fmt: skip
    write_responses(tmp_path, VERDICTS)
    figures = measure_search(tmp_path, build_recipe({"Table 1": counts}), "pool")
    assert {f"pool.{figure.quantity}": figure.measured for figure in figures} == counts
    assert all(figure.standard_errors == 0 for figure in figures)
    write_responses(tmp_path, VERDICTS, "audit")
    # two of four samples pass for a, c and d, one for e: Pass@1 7/24, Pass@2 (3 * 5/6 + 1/2) / 6
    rates = {"audit.greedy": 33.3, "audit.pass@1": 29.2, "audit.pass@2": 50.0}
    figures = measure_search(tmp_path, build_recipe({"Table 12": rates}), "audit")
    assert [round(figure.measured or 0, 3) for figure in figures] == [33.333, 29.167, 50.0]
    assert [figure.format_value(figure.measured or 0) for figure in figures] == [
        "33.3%",
        "29.2%",
        "50.0%",
    ]


@pytest.mark.parametrize(
    ("changes", "is_compared"),
    [
        ({}, True),
        ({"data": {"pool_limit": 6}}, False),
        ({"experiments": {"scaling": {"calibration": 3}}}, False),
        ({"experiments": {"scaling": {"calibration": "validation"}}}, True),
    ],
)
def test_does_not_compare_different_problems_or_samples(
    tmp_path: Path, changes: dict[str, Any], is_compared: bool
) -> None:
    write_responses(tmp_path, VERDICTS)
    recipe = build_recipe({"Table 1": {"pool.recovered@8": 3, "pool.solved": 2}}, **changes)
    figures = measure_search(tmp_path, recipe, "pool")
    assert [figure.measured for figure in figures] == [None, 2 if is_compared else None]


@pytest.mark.parametrize("split", ["pool", "audit"])
def test_does_not_compare_models_of_other_problems(split: str) -> None:
    paper = {"Table 1": {"gapft.pass_at_1": 50.0, "gapft minus uniform.delta": 1.0}}
    assert not any(value.reason for value in list_published(build_recipe(paper)))
    limited = build_recipe(paper, data={f"{split}_limit": 6})
    reasons = {value.reason for value in list_published(limited)}
    assert reasons == {f"data.{split}_limit selects other problems"}


def test_marks_figures_beyond_chance() -> None:
    """3,190 of 12,356: one standard error is 48.6 problems."""
    near = PublishedValue("Table 1", "pool", "recovered@8", 3190, 3286, 12_356)
    far = PublishedValue("Table 1", "pool", "recovered@8", 3190, 3289, 12_356)
    assert (near.is_far, far.is_far) == (False, True)
    assert round(far.standard_errors or 0, 2) == 2.04
    assert len([*describe_differences([near])]) == 1
    assert [*describe_differences([far, near])][-1].startswith("warning: ")
    zero = PublishedValue("Table 1", "pool", "recovered@8", 0, 0, 100)
    assert zero.standard_errors == 0


def read_printed_figures(recipe: str) -> dict[str, float]:
    """Return a bundled recipe's published values by name."""
    published = list_published(load_recipe(list_bundled_recipes()[recipe]).model_dump(mode="json"))
    return {f"{figure.subject}.{figure.quantity}": figure.printed for figure in published}


def test_bundled_recipes_have_the_papers_values() -> None:
    """Table 1 and the counts of Appendix A, copied from the paper."""
    rows = {
        "llama-logiqa": (3190, 9429, 50.33, 55.84, 60.33, 62.59, 65.89),
        "llama-reclor": (913, 3050, 55.40, 61.27, 69.13, 70.67, 73.80),
        "qwen-logiqa": (275, 8797, 68.54, 68.50, 68.20, 68.81, 70.06),
        "qwen-reclor": (63, 2977, 72.20, 72.00, 71.53, 72.47, 73.20),
        "mistral-logiqa": (887, 6554, 47.26, 49.74, 49.57, 51.87, 53.21),
        "mistral-reclor": (252, 2192, 48.80, 53.47, 52.53, 54.33, 57.20),
    }
    names = (
        "pool.recovered@8", "pool.verified@8", "audit.greedy", "replay.pass_at_1",
        "uniform.pass_at_1", "gapft.pass_at_1", "all_verified.pass_at_1",
    )  # fmt: skip
    early = {"llama-logiqa": (831, 2324), "llama-reclor": (241, 653)}
    for name, row in rows.items():
        printed = read_printed_figures(f"paper/{name}")
        assert tuple(printed[key] for key in names) == row, name
        if name in early:
            assert (printed["pool.recovered@1"], printed["pool.recovered@4"]) == early[name]
        # the printed rates and states of a decomposition give its printed Pass@1 (Equation 9)
        solved, within = printed["audit.greedy"], printed["audit.pass@8"]
        for condition in ("replay", "uniform", "gapft", "all_verified"):
            kept, corrected, acquired = (
                share * rate / 100
                for share, rate in (
                    (solved, 100 - printed[f"{condition}.rho_G"]),
                    (within - solved, printed[f"{condition}.kappa_S"]),
                    (100 - within, printed[f"{condition}.kappa_U"]),
                )
            )
            total = kept + corrected + acquired
            assert total == pytest.approx(printed[f"{condition}.pass_at_1"], abs=0.1), condition


def test_printed_intervals_contain_their_differences() -> None:
    count = 0
    for recipe in list_bundled_recipes():
        figures = read_printed_figures(recipe)
        pairs = [name.removesuffix(".ci95_low") for name in figures if name.endswith(".ci95_low")]
        for pair in pairs:
            low, high = figures[f"{pair}.ci95_low"], figures[f"{pair}.ci95_high"]
            assert low < figures[f"{pair}.delta"] < high, (recipe, pair)
        count += len(pairs)
    assert count >= 25


def test_recipes_have_the_papers_k_eq() -> None:
    """The 24 values of Table 12."""
    names = ("replay", "uniform", "gapft", "all_verified")
    for (model, task), (*_, printed) in AMORTIZATION.items():
        figures = read_printed_figures(f"paper/{model.lower()}-{task.lower()}")
        values = [PublishedValue("", name, "k_eq", figures[f"{name}.k_eq"]) for name in names]
        assert tuple(value.format_value(value.printed) for value in values) == printed


def test_older_recipes_have_the_papers_scope_matrix() -> None:
    """Table 8, in the order of its rows; the null rates are printed for K = 8 only."""
    names = ("llama-logiqa", "qwen-logiqa", "llama-reclor", "qwen-reclor")
    null = ((21.90, 11.11), (27.83, 4.92), (23.86, 21.16), (24.24, 2.28))
    for number, (k, (solved, *_), _, *rates) in enumerate(SCOPE):
        figures = read_printed_figures(f"paper/older-{names[number // 2]}")
        condition = "uniform_4" if k == 4 else "uniform"
        keys = ("kappa_S", "kappa_U", "rho_G", "net_gain")
        assert [figures[f"{condition}.{key}@{k}"] for key in keys] == rates
        assert figures["audit.solved"] == solved
        nulls = tuple(figures.get(f"{condition}.{key}@{k}") for key in ("null_S", "null_U"))
        assert nulls == (null[number // 2] if k == 8 else (None, None))


def test_main_study_has_the_papers_means() -> None:
    """Table 1 and Section 4.2; the means follow from the six rows."""
    study = read_study("paper/main")
    printed = {
        f"{figure.subject}.{figure.quantity}": figure.printed
        for figure in parse_published(study.paper)
    }
    assert printed == {
        "gapft minus source.delta": 6.37, "gapft minus uniform.delta": 1.57,
        "gapft minus uniform.ci95_low": 0.77, "gapft minus uniform.ci95_high": 2.45,
    }  # fmt: skip
    cells = [read_printed_figures(str(cell.recipe)) for cell in study.cells.values()]
    for other, key in (("source", "audit.greedy"), ("uniform", "uniform.pass_at_1")):
        mean = sum(figures["gapft.pass_at_1"] - figures[key] for figures in cells) / 6
        assert printed[f"gapft minus {other}.delta"] == pytest.approx(mean, abs=0.011)


@pytest.mark.parametrize("recipe", [*list_bundled_recipes()])
def test_printed_differences_equal_printed_rates(recipe: str) -> None:
    """A printed difference equals that of two printed Pass@1 values, up to rounding."""
    figures = read_printed_figures(recipe)
    for name, value in figures.items():
        pair, _, what = name.rpartition(".")
        if what != "delta":
            continue
        rates = [
            figures.get("audit.greedy" if side == "source" else f"{side}.pass_at_1")
            for side in pair.split(" minus ")
        ]
        if None not in rates:
            assert value == pytest.approx(rates[0] - rates[1], abs=0.0151), name
        parts = [figures.get(f"{pair}.{state}") for state in "SUG"]
        if None not in parts:
            assert value == pytest.approx(sum(parts), abs=0.0201), name


def test_online_control_has_the_papers_updates() -> None:
    """1,625 is ⌈n/2⌉ at the older search's n = 3,249; a run's own J follows from its own n."""
    figures = read_printed_figures("paper/online-llama-logiqa")
    n = figures["pool.recovered@8"]
    for condition in ("gapft", "grpo_all", "grpo_masked"):
        assert figures[f"{condition}.steps"] == -(-n // 2) == 1625
    for own in (3249, 100):
        text = describe_dry_run(
            Options("paper/online-llama-logiqa", overrides=[f"budget.n={own}"]), Path("nowhere")
        )
        assert text.count(f"J = {-(-own // 2)}") >= 2, own


def test_recipes_print_no_impossible_figures() -> None:
    """The paper counts over the whole training split (ReClor: 4,638 problems)."""
    pools: dict[str, set[float]] = {}
    for name, file in list_bundled_recipes().items():
        figures = list_published(load_recipe(file).model_dump(mode="json"))
        assert [figure.label for figure in figures if figure.reason] == [], name
        pools[name] = {figure.printed for figure in figures if figure.subject == "pool"}
    assert {655, 916, 3049} <= pools["paper/older-llama-reclor-pool"]
    assert {50, 63} <= pools["paper/older-qwen-reclor-pool"]


RECIPE = (
    "name: r\ndata: {task: letters}\nmodel: {backend: dummy, args: {pretrained: none}}\n"
    "executor: {name: here}\n"
    "paper: {Table 1: {pool.recovered@8: 3, gapft.pass_at_1: 62.5}, Table 12: {audit.greedy: 95}}\n"
)


def test_search_and_report_compare_figures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The dummy sampler recovers 0 of 6 (paper: 3) and solves 2 of 9 (paper: 95%)."""
    write_letters(tmp_path, {"pool": 6, "audit": 9})
    (tmp_path / "contains.py").write_text(CONTAINS)
    (tmp_path / "here.py").write_text(IN_PROCESS_PLUGIN)
    (tmp_path / "recipe.yaml").write_text(RECIPE)
    monkeypatch.chdir(tmp_path)
    plugins = ("--plugin", "contains.py", "--plugin", "here.py")
    done = call("run", "recipe.yaml", "--include-path", "tasks", *plugins, "--run-dir", "run")
    assert done.returncode == 0, done.stderr
    text = " ".join((done.stdout + done.stderr).split())
    pool = "pool: recovered, K = 8: 0 in this run, 3 in the paper (Table 1); OFF by 2.4"
    assert pool in text
    assert "22.2% in this run, 95.0% in the paper (Table 12); OFF by 6.9" in text
    content = json.loads((tmp_path / "run/report/results.json").read_text())
    _, greedy = content["paper"]
    assert (greedy["here"], greedy["paper"]) == (pytest.approx(200 / 9), 95.0)
    assert greedy["standard_errors"] == pytest.approx(
        (95 - 200 / 9) / (100 * (8 / 9 / 9 / 9) ** 0.5)
    )
