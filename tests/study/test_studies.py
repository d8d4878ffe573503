"""Studies of complete runs: their report, rejected inputs, remaining work, and verify."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import yaml

from gapft_harness.core.errors import GapftError, UserError
from gapft_harness.recipe.bundled import find_recipe, list_bundled_recipes, list_bundled_studies
from gapft_harness.recipe.reading import check_recipe
from gapft_harness.recipe.recipe import Recipe
from gapft_harness.study.driver import describe_study, run_study
from gapft_harness.study.protocol import require_equal, select_recipe_protocol
from gapft_harness.study.recipe import read_study
from gapft_harness.study.verify import verify_study
from tests.kit.command import succeed
from tests.kit.planted_run import read_json, write_planted_task
from tests.kit.records import change_recipe, change_run, record_again
from tests.kit.report_tables import find_row

CONDITIONS = ["gapft", "uniform", "replay", "all_verified"]


@pytest.fixture(scope="module")
def run_directories(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the runs ``a`` and ``b``, which has a smaller pool."""
    folder = tmp_path_factory.mktemp("planted") / "task"
    task = write_planted_task(folder, range(60), range(200, 230))
    for name, pool in (("a", 60), ("b", 50)):
        task.run(name, conditions=CONDITIONS, budget={"n": 8}, data={"pool_limit": pool})
    return folder


@pytest.fixture
def folder(run_directories: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Copy the runs to ``runs`` in the working directory, beside a study recipe."""
    shutil.copytree(run_directories, tmp_path / "here/runs", copy_function=shutil.copyfile)
    monkeypatch.chdir(tmp_path / "here")
    write_study_file()
    return tmp_path / "here"


def write_study_file(**changes: Any) -> None:
    """Write a study of ``runs/a`` and ``runs/b``, with changes, in the working directory."""
    cells = {"A": {"run": "runs/a"}, "B / b": {"run": "runs/b"}}
    content = {"name": "two", "seeds": [13, 21], "cells": cells, **changes}
    Path("study.yaml").write_text(yaml.safe_dump(content, sort_keys=False))


def run_planted_study(folder: Path) -> Path:
    """Run the study in this process; its cells need no recipe."""
    refuse = pytest.fail
    return run_study(read_study("study.yaml"), folder / "study", refuse, refuse, print)


def read_results(folder: Path) -> dict[str, Any]:
    return read_json(folder / "study/report/results.json")


def find_differences(folder: Path) -> list[str]:
    """Verify the study; return the differences."""
    return verify_study(folder / "study", [str(folder / "runs/plugin.py")]).differences


def list_report_differences(folder: Path) -> list[str]:
    """Return the files of the study's own report that differ."""
    files = (line.partition(":")[0] for line in find_differences(folder))
    return sorted(file for file in files if file.startswith("report"))


def change_rate(recipe: dict[str, Any]) -> None:
    recipe["training"]["learning_rate"] = 1e-3


# The report


def test_writes_study_of_existing_runs(folder: Path) -> None:
    write_study_file(
        description="Two models.",
        notes=["A remark."],
        paper={"Table 1": {"gapft minus source.delta": 6.37}},
    )
    page = run_planted_study(folder)
    assert page == folder / "study/report/index.html"
    results = read_results(folder)
    assert [row["state"] for row in results["cells"]] == ["complete"] * 2
    assert [row["cell"] for row in results["conditions"]][::5] == ["A", "B / b"]
    gain = find_row(results["means"], a="gapft", b="source")
    assert gain["delta_low"] < gain["delta"] < gain["delta_high"]
    assert gain["printed"] == "delta +6.37 (Table 1)"
    assert [row["b"] for row in results["means"] if row["matched_budget"]] == ["uniform", "replay"]
    text = (page.parent / "index.md").read_text()
    for part in ("Two models.", "A remark.", "all verified \\*", "equal weights", "## Cells"):
        assert part in text
    assert (page.parent / "figures/forest.svg").is_file()
    before = page.read_bytes()
    assert run_planted_study(folder).read_bytes() == before


# Rejected cells


def miss_decisions(run: Path) -> None:
    (run / "decisions/uniform-seed21.parquet").unlink()


def miss_seed(run: Path) -> None:
    write_study_file(seeds=[13, 42])


def edit_decisions(run: Path) -> None:
    path = run / "decisions/gapft-seed13.parquet"
    path.write_bytes(path.read_bytes() + b" ")


def decide_fewer_problems(run: Path) -> None:
    file = "decisions/uniform-seed13.parquet"
    pq.write_table(pq.read_table(run / file).slice(1), run / file)
    record_again(run, file)


def damage_facts(run: Path) -> None:
    change_run(run, lambda content: content.update(history=7))


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        (miss_decisions, "uniform-seed21"),
        (miss_seed, "42"),
        (edit_decisions, r"gapft-seed13\.parquet"),
        (decide_fewer_problems, "uniform-seed13"),
        (damage_facts, "cannot be read"),
    ],
)
def test_unusable_run_is_an_incomplete_cell(
    folder: Path, change: Callable[[Path], None], fault: str
) -> None:
    """The study has no means, and its report says why."""
    change(folder / "runs/a")
    with pytest.raises(GapftError, match=rf"  A: .*{fault}") as error:
        run_planted_study(folder)
    assert error.value.exit_status == 1
    results = read_results(folder)
    assert "means" not in results
    assert re.search(fault, results["cells"][0]["state"])
    assert re.search(fault, results["warnings"][0])
    incomplete = [cell for cell in results["cells"] if cell["state"] != "complete"]
    assert [cell["model"] for cell in incomplete] == [None] * len(incomplete)
    assert f"{len(incomplete)} of 2" in str(error.value)


def test_report_of_an_incomplete_study_is_verified(folder: Path) -> None:
    miss_decisions(folder / "runs/a")
    with pytest.raises(GapftError):
        run_planted_study(folder)
    assert read_results(folder)["cells"][1]["state"] == "complete"
    assert list_report_differences(folder) == []


OWN_N = {"gapft": {}, "replay": {}, "all_verified": {}, "uniform": {"n": 7}}
OWN_SETTINGS = {
    "search": {"k": 4, "chunk": 9, "max_gen_toks": 7},
    "training": {"gradient_checkpointing": True},
    "verifier": {"params": {"rule": "x"}},
}
MODEL = {"args": {"pretrained": "planted"}}
ONE_TOKEN, TWO_TOKENS = ({"model": {**MODEL, "start_tokens": count}} for count in (1, 2))


@pytest.mark.parametrize(
    ("first", "second", "difference"),
    [
        ({}, {"search": {"k": 4, "temperature": 1.0}}, "search.temperature 0.7 → 1.0"),
        ({}, {"conditions": OWN_N}, "conditions.uniform.n not set → 7"),
        (TWO_TOKENS, ONE_TOKEN, "model.start_tokens 2 → 1"),
        (
            TWO_TOKENS,
            {**TWO_TOKENS, "training": {"start_tokens": 1}},
            "training.start_tokens 2 → 1",
        ),
        (TWO_TOKENS, {}, ""),  # like Llama, and Qwen, whose tokenizer has none
        ({}, OWN_SETTINGS, ""),
    ],
)
def test_cells_have_one_protocol_except_own_settings(
    first: Any, second: Any, difference: str
) -> None:
    common = {"name": "r", "data": {"task": "t"}, "model": MODEL, "search": {"k": 4}}
    protocols = {}
    for name, changes in (("A", first), ("B", second)):
        recipe = check_recipe({**common, "conditions": CONDITIONS, **changes}, "test")
        protocols[name] = select_recipe_protocol(recipe, CONDITIONS)
    if not difference:
        require_equal(protocols)
        return
    with pytest.raises(UserError, match=f"  'A' → 'B': {difference}\n"):
        require_equal(protocols)


def change_task(run: Path, key: str, value: Any) -> None:
    change_run(run, lambda content: content["task"].update({key: value}))


@pytest.mark.parametrize(
    ("change", "difference"),
    [
        (partial(change_recipe, change=change_rate), "training.learning_rate 5e-05 → 0.001"),
        (partial(change_task, key="fingerprint", value="f" * 12), "fingerprint of task planted"),
        (partial(change_task, key="version", value=2), "version of task planted"),
    ],
)
def test_rejects_different_protocols_before_writing(
    folder: Path, change: Callable[[Path], None], difference: str
) -> None:
    change(folder / "runs/b")
    with pytest.raises(UserError, match=rf"'A' → 'B / b': {difference}"):
        run_planted_study(folder)
    assert not (folder / "study").exists()


def resolve_recipe(cell: str, **training: Any) -> Recipe:
    """Return the recipe of cell A or B: that of its run, with changes of its training."""
    content = yaml.safe_load(Path(f"runs/{cell.lower()}/recipe.yaml").read_text())
    content["training"] |= training
    return check_recipe(content, "test")


def test_rejects_later_run_with_different_protocol(folder: Path) -> None:
    write_study_file(cells={"A": {"recipe": "x"}, "B": {"run": "runs/late"}})

    def run_cell(name: str, place: Path) -> None:
        shutil.copytree("runs/a", place)
        shutil.copytree("runs/b", "runs/late")
        change_recipe(folder / "runs/late", change_rate)

    with pytest.raises(UserError, match=r"training.learning_rate 5e-05 → 0.001"):
        run_study(read_study("study.yaml"), folder / "study", resolve_recipe, run_cell, print)
    assert not (folder / "study/report").exists()


# The folder


def test_rejects_folder_with_unknown_files(folder: Path) -> None:
    chapter = folder / "study/report/chapter1.tex"
    chapter.parent.mkdir(parents=True)
    chapter.write_text("my thesis")
    with pytest.raises(UserError, match=r"contains files but no study\.yaml"):
        run_planted_study(folder)
    # the same with a study file in the folder
    shutil.copy("study.yaml", "study/study.yaml")
    with pytest.raises(UserError, match=r"report: .* chapter1\.tex"):
        run_planted_study(folder)
    assert {path.name for path in folder.glob("study/*")} == {"report", "study.yaml"}


def test_updates_its_own_study_file_but_not_a_handwritten_one(folder: Path) -> None:
    run_planted_study(folder)
    write_study_file(seeds=[13])
    run_planted_study(folder)
    own = folder / "study/study.yaml"
    assert read_study(str(own)).seeds == (13,)
    text = "# mine\n" + Path("study.yaml").read_text()
    own.write_text(text)
    run_planted_study(folder)
    assert own.read_text() == text  # and its paths are as they were
    write_study_file(seeds=[21])
    with pytest.raises(UserError, match=r"study\.yaml: was written by hand(.|\n)*: seeds"):
        run_planted_study(folder)
    assert own.read_text() == text


def test_warns_of_trained_arms_that_it_leaves_out(folder: Path) -> None:
    write_study_file(seeds=[13])
    run_planted_study(folder)
    warnings = read_results(folder)["warnings"]
    assert any(w.startswith("A: ") and "gapft-seed21" in w for w in warnings)


def test_distinguishes_runs_from_studies(folder: Path) -> None:
    with pytest.raises(UserError, match="expected the recipe of a run"):
        find_recipe("study.yaml")
    with pytest.raises(UserError, match=r"study .*demo\.yaml: unknown key"):
        read_study("demo")
    with pytest.raises(UserError, match=r"runs/a: contains files but no study\.yaml"):
        run_study(read_study("study.yaml"), Path("runs/a"), pytest.fail, pytest.fail, print)
    run_planted_study(folder)
    write_study_file(name="another")
    with pytest.raises(UserError, match=r"contains the study 'two', .* 'another'"):
        run_planted_study(folder)


# Verify


def test_verify_finds_changed_reports_and_cells(folder: Path) -> None:
    run_planted_study(folder)
    assert find_differences(folder) == []
    means = folder / "study/report/tables/means.csv"
    means.write_bytes(means.read_bytes().replace(b"1", b"2", 1))
    (folder / "study/report/more.txt").write_text("x")
    (folder / "study/report/index.html").write_text("")
    assert any(line.endswith("versions of matplotlib") for line in find_differences(folder))
    changed = ["report/index.html", "report/more.txt", "report/tables/means.csv"]
    assert list_report_differences(folder) == changed
    run = folder / "runs/a"
    shutil.copy(run / "decisions/gapft-seed21.parquet", run / "decisions/gapft-seed13.parquet")
    record_again(run, "decisions/gapft-seed13.parquet")
    assert "report/results.json" in list_report_differences(folder)
    change_recipe(folder / "runs/b", change_rate)
    assert any("training.learning_rate 5e-05 → 0.001" in line for line in find_differences(folder))


# Remaining work


def test_dry_run_reports_changed_and_missing_cells(folder: Path) -> None:
    write_study_file(cells={"A": {"recipe": "x"}, "B": {"recipe": "y"}, "C": {"run": "runs/c"}})
    recipe = read_study("study.yaml")
    for name in "ab":
        shutil.copytree(f"runs/{name}", f"study/cells/{name}")
    shutil.copy("study.yaml", "study/study.yaml")
    text = describe_study(recipe, folder / "study", resolve_recipe)
    assert "n = 8; N = 16" in text
    assert "C\n  an existing run" in text
    assert "left: not run yet" in text
    assert "1 of 3 cells are left" in text
    with pytest.raises(GapftError, match="  C: not run yet"):  # complete cells are not run again
        run_study(recipe, folder / "study", resolve_recipe, pytest.fail, print)
    resolve_changed = partial(resolve_recipe, learning_rate=9e-4)
    text = describe_study(recipe, folder / "study", resolve_changed)
    assert "3 of 3 cells are left" in text
    assert text.count("learning_rate 5e-05 → 0.0009") == 2

    def run_cell(name: str, place: Path) -> None:
        raise UserError(f"{name} is out of luck\nand more")

    faults = r"  A: A is out of luck\n  B: B is out of luck\n  C: not run yet\n"
    with pytest.raises(GapftError, match=faults):
        run_study(recipe, folder / "study", resolve_changed, run_cell, print)


@pytest.mark.parametrize("name", sorted(list_bundled_studies()))
def test_bundled_studies_have_one_protocol(name: str) -> None:
    from gapft_harness.cli.options import Options
    from gapft_harness.cli.runs import resolve_recipe

    study = read_study(name)
    protocols = {}
    for cell, choice in study.cells.items():
        overrides = study.list_overrides(cell)
        recipe = resolve_recipe(Options(choice.recipe, overrides=overrides, seeds=study.seeds))
        protocols[cell] = select_recipe_protocol(recipe, study.conditions)
    require_equal(protocols)
    assert name not in list_bundled_recipes()


def test_paper_study_has_six_logic_recipes(tmp_path: Path) -> None:
    text = succeed("run", "paper/main", "--dry-run", cwd=tmp_path).stdout
    assert [c.recipe for c in read_study("paper/main").cells.values()] == [
        f"paper/{model}-{task}" for model in ("llama", "qwen", "mistral")
        for task in ("logiqa", "reclor")
    ]  # fmt: skip
    assert "6 of 6 cells are left; 12 adapters each" in text
    assert not (tmp_path / "runs").exists()
