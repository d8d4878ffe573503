"""Figures that a paper prints: held against a search, a dry run and a report, by hand counts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from gapft_harness.core.errors import UserError
from gapft_harness.recipe.bundled import bundled_recipes
from gapft_harness.recipe.reading import check_recipe, load_recipe
from gapft_harness.report.reading.paper import Figure, printed, searched, told
from gapft_harness.run_directory import layout
from tests.command import gapft, succeed
from tests.letters_task import CONTAINS, write_letters

#: Greedy, then four samples, of six problems: solved are a and b, c is recovered by the first
#: sample, d and e by the third, f by none; of a the second and the fourth sample pass.
VERDICTS = {"a": "10101", "b": "10000", "c": "01010", "d": "00011", "e": "00010", "f": "00000"}


def sealed(path: Path, verdicts: dict[str, str], split: str = "pool") -> None:
    rows = [
        (name, index - 1, "pass" if one == "1" else "fail")
        for name, each in verdicts.items()
        for index, one in enumerate(each)
    ]
    names = ("problem_id", "index", "status")
    table = pa.table({name: [row[i] for row in rows] for i, name in enumerate(names)})
    (path / layout.responses(split)).parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(table, path / layout.responses(split))


def recipe(paper: dict[str, dict[str, float]], **more: Any) -> dict[str, Any]:
    made = {
        "name": "r",
        "data": {"task": "t", **more.pop("data", {})},
        "model": {"args": {"pretrained": "m"}},
        "search": {"k": 4},
        "paper": paper,
        **more,
    }
    return check_recipe(made, "x").model_dump(mode="json")


def test_every_figure_of_a_search_is_what_was_counted_by_hand(tmp_path: Path) -> None:
    counts = {
        "pool.solved": 2, "pool.recovered@1": 1, "pool.recovered@2": 1, "pool.recovered@3": 3,
        "pool.recovered@4": 3, "pool.missed@1": 3, "pool.missed@4": 1, "pool.verified@1": 3,
        "pool.verified@4": 5,
    }  # fmt: skip
    sealed(tmp_path, VERDICTS)
    found = searched(tmp_path, recipe({"Table 1": counts}), "pool")
    assert {f"pool.{of.what}": of.here for of in found} == counts
    assert all(of.apart == 0 for of in found)
    sealed(tmp_path, VERDICTS, "audit")
    # of a, c and d two of four samples pass, of e one: Pass@1 7/24, Pass@2 (3 * 5/6 + 1/2) / 6
    rates = {"audit.greedy": 33.3, "audit.pass@1": 29.2, "audit.pass@2": 50.0}
    found = searched(tmp_path, recipe({"Table 12": rates}), "audit")
    assert [round(of.here or 0, 3) for of in found] == [33.333, 29.167, 50.0]
    assert [of.shown(of.here or 0) for of in found] == ["33.3%", "29.2%", "50.0%"]


def test_what_is_of_other_problems_or_samples_is_not_compared(tmp_path: Path) -> None:
    sealed(tmp_path, VERDICTS)
    paper = {"Table 1": {"pool.recovered@8": 3, "pool.solved": 2}}
    assert [of.here for of in searched(tmp_path, recipe(paper), "pool")] == [None, 2]
    limited = recipe(paper, data={"pool_limit": 6})
    found = searched(tmp_path, limited, "pool")
    assert [of.here for of in found] == [None, None]
    assert all(
        said.text.endswith("not comparable here, data.pool_limit leaves other problems")
        for said in told(found)
    )
    calibrated = recipe(paper, experiments={"scaling": {"calibration": 3}})
    assert [of.here for of in searched(tmp_path, calibrated, "pool")] == [None, None]
    elsewhere = recipe(paper, experiments={"scaling": {"calibration": "validation"}})
    assert [of.here for of in searched(tmp_path, elsewhere, "pool")] == [None, 2]


def test_what_chance_does_not_explain_is_off() -> None:
    """3,190 of 12,356: one standard error is 48.6 problems."""
    near = Figure("Table 1", "pool", "recovered@8", 3190, 3286, 12_356)
    far = Figure("Table 1", "pool", "recovered@8", 3190, 3289, 12_356)
    assert (near.is_far, far.is_far) == (False, True)
    assert round(far.apart or 0, 2) == 2.04
    assert [said.line for said in told([near])] == [
        "pool: recovered within 8 samples: 3,286 here, 3,190 in the paper (Table 1)"
    ]
    said = [of.line for of in told([far, near])]
    assert said[0].endswith("3,190 in the paper (Table 1); OFF by 2.0 standard errors")
    assert said[-1].startswith("warning: the source differs from the paper's by more than chance")
    assert Figure("Table 11", "gapft", "kappa_S", 54.7).label == "gapft: κ_S"
    zero = Figure("Table 1", "pool", "recovered@8", 0, 0, 100)
    assert zero.apart == 0


@pytest.mark.parametrize(
    ("paper", "said"),
    [
        ({"Table 1": {"pool.recovered": 3}}, "'pool.recovered' is no figure; expected one such"),
        ({"Table 1": {"pool.pass@2": 3}}, "'pool.pass@2' is no figure"),
        ({"Table 1": {"gapft.kappa_s": 3}}, "'gapft.kappa_s' is no figure"),
        ({"Table 1": {"audit.greedy": 3}, "T2": {"audit.greedy": 4}}, "is given twice"),
    ],
)
def test_a_figure_that_is_none_is_an_error(paper: dict[str, Any], said: str) -> None:
    with pytest.raises(UserError, match=said):
        recipe(paper)


def test_the_recipes_print_what_the_paper_prints() -> None:
    """Table 1 and the counts of Appendix A, typed in here once more."""
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
        read = load_recipe(bundled_recipes()[f"paper/{name}"]).model_dump(mode="json")
        found = {f"{of.of}.{of.what}": of.printed for of in printed(read)}
        assert tuple(found[key] for key in names) == row, name
        if name in early:
            assert (found["pool.recovered@1"], found["pool.recovered@4"]) == early[name]
        # a decomposition gives its Pass@1 again (Equation 8), by rates and states as printed
        solved, within = found["audit.greedy"], found["audit.pass@8"]
        for condition in ("replay", "uniform", "gapft", "all_verified"):
            kept, corrected, found_anew = (
                share * rate / 100
                for share, rate in (
                    (solved, 100 - found[f"{condition}.rho_G"]),
                    (within - solved, found[f"{condition}.kappa_S"]),
                    (100 - within, found[f"{condition}.kappa_U"]),
                )
            )
            again = kept + corrected + found_anew
            assert again == pytest.approx(found[f"{condition}.pass_at_1"], abs=0.1), condition


def test_conditions_that_figures_are_of_are_conditions_of_the_recipe() -> None:
    known = 0
    for name, file in bundled_recipes().items():
        read = load_recipe(file)
        for figure in printed(read.model_dump(mode="json")):
            assert figure.of in ("pool", "audit", *read.conditions), name
            known += 1
    assert known > 150


def test_no_recipe_prints_what_its_own_problems_cannot_give() -> None:
    """The paper's counts of a pool are of the whole training split, 4,638 problems of ReClor."""
    pools: dict[str, set[float]] = {}
    for name, file in bundled_recipes().items():
        figures = printed(load_recipe(file).model_dump(mode="json"))
        assert [figure.label for figure in figures if figure.why] == [], name
        pools[name] = {figure.printed for figure in figures if figure.of == "pool"}
    assert {655, 916, 3049} <= pools["paper/older-llama-reclor-pool"]
    assert {50, 63} <= pools["paper/older-qwen-reclor-pool"]


RECIPE = (
    "name: r\ndata: {task: letters}\nmodel: {backend: dummy, args: {pretrained: none}}\n"
    "paper: {Table 1: {pool.recovered@8: 3, gapft.pass_at_1: 62.5}, Table 12: {audit.greedy: 95}}\n"
)


def test_a_search_that_is_merged_of_shards_is_held_too(tmp_path: Path) -> None:
    write_letters(tmp_path, {"pool": 6, "audit": 9})
    (tmp_path / "contains.py").write_text(CONTAINS)
    (tmp_path / "recipe.yaml").write_text(RECIPE)
    asked = ("recipe.yaml", "--include-path", "tasks", "--plugin", "contains.py")
    part = succeed(
        *("run", *asked, "--run-dir", "run", "--only", "search", "--shard", "1/1"), cwd=tmp_path
    )
    assert "in the paper" not in part.stdout + part.stderr, "a part is not the paper's pool"
    whole = succeed("run", "run", "--only", "merge", "--plugin", "contains.py", cwd=tmp_path)
    said = " ".join((whole.stdout + whole.stderr).split())
    assert "pool: recovered within 8 samples: 0 here, 3 in the paper (Table 1); OFF by 2.4" in said
    assert "warning: the source differs from the paper's by more than chance explains" in said


def test_a_search_a_dry_run_and_a_report_say_it(tmp_path: Path) -> None:
    """The dummy sampler recovers none of 6 in place of 3, and solves 2 of 9 in place of 95%."""
    write_letters(tmp_path, {"pool": 6, "audit": 9})
    (tmp_path / "contains.py").write_text(CONTAINS)
    (tmp_path / "recipe.yaml").write_text(RECIPE)
    asked = ("recipe.yaml", "--include-path", "tasks", "--plugin", "contains.py")
    dry = gapft("run", *asked, "--run-dir", "run", "--dry-run", cwd=tmp_path).stdout
    before = dry.partition("# the paper's source\n")[2].partition("\n\n")[0]
    assert before.splitlines() == [
        "pool: recovered within 8 samples: 3 (Table 1); held against the search once it is done",
        "audit: greedy Pass@1: 95.0% (Table 12); held against the search once it is done",
    ]
    search = ("run", *asked, "--run-dir", "run", "--only", "search")
    found = succeed(*search, cwd=tmp_path)
    said = " ".join((found.stdout + found.stderr).split())
    pool = "pool: recovered within 8 samples: 0 here, 3 in the paper (Table 1); OFF by 2.4 standard"
    assert pool in said
    assert "audit: greedy Pass@1: 22.2% here, 95.0% in the paper (Table 12); OFF by 6.9" in said
    assert "warning: the source differs from the paper's by more than chance explains" in said
    dry = gapft("run", *asked, "--run-dir", "run", "--dry-run", cwd=tmp_path).stdout
    assert pool in dry
    limit = ("--set", "data.pool_limit=4")
    dry = gapft("run", *asked, "--run-dir", "other", *limit, "--dry-run", cwd=tmp_path).stdout
    assert "3 (Table 1); not comparable: data.pool_limit leaves other problems" in dry
    succeed("run", *asked, "--run-dir", "run", cwd=tmp_path)
    page = (tmp_path / "run/report/report.md").read_text()
    section = page.partition("## Beside the paper")[2].partition("\n## ")[0]
    assert "The source differs from the paper's" in section
    assert "| pool: recovered within 8 samples | Table 1 | 3 | 0 | −3 | 2.4 |" in section
    content = json.loads((tmp_path / "run/report/results.json").read_text())
    _, greedy = content["paper"]
    assert (greedy["here"], greedy["paper"]) == (pytest.approx(200 / 9), 95.0)
    assert greedy["standard_errors"] == pytest.approx(
        (95 - 200 / 9) / (100 * (8 / 9 / 9 / 9) ** 0.5)
    )
