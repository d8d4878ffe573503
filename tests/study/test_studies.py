"""Studies of complete runs: their report, rejected inputs, remaining work, and verify."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from gapft_harness.core.errors import GapftError, UserError
from gapft_harness.recipe.bundled import find_recipe, list_bundled_recipes, list_bundled_studies
from gapft_harness.recipe.reading import check_recipe
from gapft_harness.recipe.recipe import Recipe
from gapft_harness.run_directory.directory import RunDirectory
from gapft_harness.run_directory.tables import response_schema
from gapft_harness.study.driver import describe_study, run_study
from gapft_harness.study.protocol import require_equal, select_recipe_protocol
from gapft_harness.study.recipe import read_study
from gapft_harness.study.verify import verify_study
from tests.kit.command import succeed
from tests.kit.records import change_run, record_again, record_files
from tests.report.written_run import build_recipe, build_response, write_rows, write_run
from tests.study.planted_cells import (
    build_cell,
    read_results,
    run_planted_study,
    write_study_file,
)


def list_report_differences(folder: Path) -> list[str]:
    """List the files of a study's report that differ; the planted runs have no task to verify."""
    differences = verify_study(folder / "study").differences
    return [line.partition(":")[0] for line in differences if line.startswith("report")]


def replace_run(folder: Path, name: str, number: int, **changes: Any) -> None:
    """Write the run ``runs/NAME`` again, with changes of its recipe."""
    shutil.rmtree(folder / "runs" / name)
    write_run(folder / "runs" / name, build_cell(number), **changes)


def resolve_planted_recipe(cell: str, **changes: Any) -> Recipe:
    """Resolve the recipe of a cell: A is run as ``runs/a``, B as ``runs/b``."""
    return check_recipe(build_recipe(build_cell("AB".index(cell)), **changes), "planted")


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
    gain = next(row for row in results["means"] if (row["a"], row["b"]) == ("gapft", "source"))
    assert gain["delta_low"] < gain["delta"] < gain["delta_high"]
    assert gain["printed"] == "delta +6.37 (Table 1)"
    assert [row["b"] for row in results["means"] if row["matched_budget"]] == ["uniform", "replay"]
    text = (page.parent / "index.md").read_text()
    for part in ("Two models.", "A remark.", "all verified \\*", "equal weights", "## Cells"):
        assert part in text
    assert (page.parent / "figures/forest.svg").is_file()
    before = page.read_bytes()
    assert run_planted_study(folder).read_bytes() == before


def test_incomplete_cell_omits_means(folder: Path) -> None:
    (folder / "runs/b/decisions/uniform-seed21.parquet").unlink()
    with pytest.raises(GapftError, match=r"1 of 2 (.|\n)*B / b: .*uniform-seed21") as error:
        run_planted_study(folder)
    assert error.value.exit_status == 1
    results = read_results(folder)
    assert "means" not in results
    first, second = results["cells"]
    assert (first["state"], second["model"]) == ("complete", None)
    assert "uniform-seed21" in second["state"]
    assert "uniform-seed21" in results["warnings"][0]
    assert list_report_differences(folder) == []


# Rejected cells


def miss_seed(folder: Path) -> None:
    write_study_file(seeds=[13, 42])


def edit_decisions(folder: Path) -> None:
    path = folder / "runs/a/decisions/gapft-seed13.parquet"
    path.write_bytes(path.read_bytes() + b" ")


def decide_other_problems(folder: Path) -> None:
    rows = [build_response(f"elsewhere-{i}", -1, "", "pass") for i in range(68)]
    file = "decisions/uniform-seed13.parquet"
    write_rows(folder / "runs/a" / file, rows, response_schema())
    record_again(folder / "runs/a", file)


def damage_facts(folder: Path) -> None:
    change_run(folder / "runs/a", lambda content: content.update(history=7))


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        (miss_seed, "42"),
        (edit_decisions, r"gapft-seed13\.parquet"),
        (decide_other_problems, "uniform-seed13"),
        (damage_facts, "cannot be read"),
    ],
)
def test_unusable_run_is_an_incomplete_cell(folder: Path, change: Any, fault: str) -> None:
    change(folder)
    with pytest.raises(GapftError, match=rf"  A: .*{fault}") as error:
        run_planted_study(folder)
    assert error.value.exit_status == 1
    assert "means" not in read_results(folder)


MODEL = {"args": {"pretrained": "planted"}}
OWN_N = {"gapft": {}, "replay": {}, "all_verified": {}, "uniform": {"n": 7}}
OWN_SETTINGS = {
    "search": {"k": 4, "chunk": 9, "max_gen_toks": 7},
    "training": {"gradient_checkpointing": True},
    "verifier": {"params": {"rule": "x"}},
}
TWO_TOKENS = {"model": {**MODEL, "start_tokens": 2}}


@pytest.mark.parametrize(
    ("first", "second", "difference"),
    [
        ({}, {"search": {"k": 4, "temperature": 1.0}}, "search.temperature 0.7 → 1.0"),
        ({}, {"conditions": OWN_N}, "conditions.uniform.n not set → 7"),
        (TWO_TOKENS, {"model": {**MODEL, "start_tokens": 1}}, "model.start_tokens 2 → 1"),
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
    recipes = {"A": first, "B": second}
    conditions = ["gapft", "uniform", "replay", "all_verified"]
    protocols = {
        name: select_recipe_protocol(resolve_planted_recipe(name, **changes), conditions)
        for name, changes in recipes.items()
    }
    if not difference:
        require_equal(protocols)
        return
    with pytest.raises(UserError, match=f"  'A' → 'B': {difference}\n"):
        require_equal(protocols)


def test_rejects_different_protocols_before_writing(folder: Path) -> None:
    replace_run(folder, "b", 1, training={"learning_rate": 1e-4})
    with pytest.raises(UserError, match=r"'A' → 'B / b': training.learning_rate 5e-05 → 0.0001"):
        run_planted_study(folder)
    assert not (folder / "study").exists()


def test_rejects_later_run_with_different_protocol(folder: Path) -> None:
    write_study_file(cells={"A": {"recipe": "x"}, "B": {"run": "runs/late"}})

    def run_cell(name: str, place: Path) -> None:
        shutil.copytree("runs/a", place)
        write_run(folder / "runs/late", build_cell(1), training={"learning_rate": 1e-3})

    with pytest.raises(UserError, match=r"training.learning_rate 5e-05 → 0.001"):
        run_study(
            read_study("study.yaml"), folder / "study", resolve_planted_recipe, run_cell, print
        )
    assert not (folder / "study/report").exists()


@pytest.mark.parametrize(("key", "value"), [("fingerprint", "f" * 12), ("version", 2)])
def test_rejects_cells_with_different_task_versions(folder: Path, key: str, value: Any) -> None:
    change_run(folder / "runs/b", lambda content: content["task"].update({key: value}))
    with pytest.raises(UserError, match=f"{key} of task gapft_synthetic"):
        run_planted_study(folder)


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


def test_does_not_overwrite_handwritten_study_file(folder: Path) -> None:
    own = folder / "study/study.yaml"
    own.parent.mkdir()
    text = "# mine\n" + Path("study.yaml").read_text()
    own.write_text(text)
    run_planted_study(folder)
    assert own.read_text() == text  # and its paths are as they were
    write_study_file(seeds=[13])
    with pytest.raises(UserError, match=r"study\.yaml: was written by hand(.|\n)*: seeds"):
        run_planted_study(folder)
    assert own.read_text() == text


def test_updates_own_study_file(folder: Path) -> None:
    run_planted_study(folder)
    write_study_file(seeds=[13])
    run_planted_study(folder)
    assert read_study("study/study.yaml").seeds == (13,)


def test_warns_of_trained_arms_that_it_leaves_out(folder: Path) -> None:
    write_study_file(seeds=[13])
    (folder / "runs/a/adapters/gapft-seed21").mkdir(parents=True)
    record_files(RunDirectory.open(folder / "runs/a"), {"adapters/gapft-seed21": {}})
    run_planted_study(folder)
    warnings = read_results(folder)["warnings"]
    (warning,) = [warning for warning in warnings if "gapft-seed21" in warning]
    assert warning.startswith("A: ")


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
    assert list_report_differences(folder) == []
    means = folder / "study/report/tables/means.csv"
    means.write_bytes(means.read_bytes().replace(b"1", b"2", 1))
    (folder / "study/report/more.txt").write_text("x")
    changed = ["report/more.txt", "report/tables/means.csv"]
    assert sorted(list_report_differences(folder)) == changed
    path = folder / "runs/a/decisions/gapft-seed13.parquet"
    path.write_bytes((folder / "runs/a/decisions/gapft-seed21.parquet").read_bytes())
    record_again(folder / "runs/a", "decisions/gapft-seed13.parquet")
    assert "report/results.json" in list_report_differences(folder)
    replace_run(folder, "b", 1, training={"learning_rate": 1e-3})
    differences = verify_study(folder / "study").differences
    assert [line for line in differences if "training.learning_rate 5e-05 → 0.001" in line]


# Remaining work


def test_dry_run_reports_changed_and_missing_cells(folder: Path) -> None:
    write_study_file(cells={"A": {"recipe": "x"}, "B": {"recipe": "y"}, "C": {"run": "runs/c"}})
    recipe = read_study("study.yaml")
    for name in "ab":
        shutil.copytree(f"runs/{name}", f"study/cells/{name}")
    (folder / "study/study.yaml").write_text(Path("study.yaml").read_text())
    text = describe_study(recipe, folder / "study", resolve_planted_recipe)
    assert "n = 110; N = 880" in text
    assert "C\n  an existing run" in text
    assert "left: not run yet" in text
    assert "1 of 3 cells are left" in text

    def resolve_changed(name: str) -> Recipe:
        return resolve_planted_recipe(name, training={"learning_rate": 9e-4})

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
