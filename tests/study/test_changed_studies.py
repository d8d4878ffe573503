"""Studies whose folder, cells or recipe changed."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from gapft_harness.core.errors import GapftError, UserError
from gapft_harness.recipe.reading import check_recipe
from gapft_harness.study.driver import describe_study, run_study
from gapft_harness.study.recipe import read_study
from gapft_harness.study.verify import verify_study
from tests.study.sealed import (
    build_cell,
    build_recipe,
    run_planted_study,
    write_run_directory,
    write_study_file,
)


def resolve_recipe(name, **changes):
    """Resolve the recipe of a cell: A is run as ``runs/a``, B as ``runs/b``."""
    return check_recipe(build_recipe(build_cell("AB".index(name)), **changes), "planted")


# The folder


def test_rejects_folder_with_unknown_files(folder):
    chapter = folder / "study/report/chapter1.tex"
    chapter.parent.mkdir(parents=True)
    chapter.write_text("my thesis")
    with pytest.raises(UserError, match=r"contains files but no study\.yaml"):
        run_planted_study(folder)
    with pytest.raises(UserError, match=r"contains files but no study\.yaml"):
        describe_study(read_study("study.yaml"), folder / "study", pytest.fail)
    # the same with a study file in the folder
    shutil.copy("study.yaml", "study/study.yaml")
    with pytest.raises(UserError, match=r"report: .* chapter1\.tex"):
        run_planted_study(folder)
    chapter.rename(chapter.with_name("index.html"))
    with pytest.raises(UserError, match=r"report: .* results\.json"):
        run_planted_study(folder)
    assert [p.name for p in folder.glob("study/*")] in (
        ["report", "study.yaml"],
        ["study.yaml", "report"],
    )


def test_does_not_overwrite_handwritten_study_file(folder):
    own = folder / "study/study.yaml"
    own.parent.mkdir()
    text = "# mine\n" + Path("study.yaml").read_text()
    own.write_text(text)
    run_planted_study(folder)
    assert own.read_text() == text  # and its paths are as they were
    write_study_file(seeds=[13])
    with pytest.raises(
        UserError, match=r"study\.yaml: was not written by this command(.|\n)*: seeds"
    ):
        run_planted_study(folder)
    assert own.read_text() == text


def test_updates_own_study_file(folder):
    run_planted_study(folder)
    write_study_file(seeds=[13])
    run_planted_study(folder)
    assert read_study("study/study.yaml").seeds == (13,)


# Protocol


def test_rejects_later_run_with_different_protocol(folder):
    write_study_file(cells={"A": {"recipe": "x"}, "B": {"run": "runs/late"}})

    def run_cell(name, place):
        shutil.copytree("runs/a", place)
        write_run_directory(folder / "runs/late", build_cell(1), training={"learning_rate": 1e-3})

    with pytest.raises(UserError, match=r"training.learning_rate 5e-05 → 0.001"):
        run_study(read_study("study.yaml"), folder / "study", resolve_recipe, run_cell, print)
    assert not (folder / "study/report").exists()


def test_verify_reports_cell_with_different_protocol(folder):
    run_planted_study(folder)
    shutil.rmtree(folder / "runs/b")
    write_run_directory(folder / "runs/b", build_cell(1), training={"learning_rate": 1e-3})
    differences = verify_study(folder / "study").differences
    assert [line for line in differences if "training.learning_rate 5e-05 → 0.001" in line]


def test_verify_reports_complete_run_missing_from_report(folder):
    shutil.move(folder / "runs/b", folder / "away")
    with pytest.raises(GapftError, match="1 of 2 cells are incomplete"):
        run_planted_study(folder)

    def list_report_differences():
        differences = verify_study(folder / "study").differences
        return [line for line in differences if "the report" in line]

    assert list_report_differences() == []
    shutil.move(folder / "away", folder / "runs/b")
    (line,) = list_report_differences()
    assert "cell 'B / b': the report leaves it out (not run yet)" in line
    assert "run the study again" in line


def test_table_1_stars_unmatched_budgets(folder):
    """A separate comparison group is matched among its own conditions, not with the lead."""
    conditions = {name: {} for name in ("gapft", "uniform", "replay")}
    for number, name in enumerate("ab"):
        inputs = build_cell(number)
        arms = tuple(replace(arm, matched=True) for arm in inputs.arms)
        shutil.rmtree(folder / "runs" / name)
        write_run_directory(
            folder / "runs" / name,
            replace(inputs, arms=arms),
            conditions={**conditions, "all_verified": {"selector": "uniform", "n": 295}},
        )
    run_planted_study(folder)
    text = (folder / "study/report/report.md").read_text()
    assert "* Not budget-matched: all verified." in text


@pytest.mark.parametrize(("key", "value"), [("fingerprint", "f" * 12), ("version", 2)])
def test_rejects_cells_with_different_task_versions(folder, key, value):
    manifest = folder / "runs/b/manifest.json"
    changed = json.loads(manifest.read_text())
    changed["task"][key] = value
    manifest.write_text(json.dumps(changed))
    with pytest.raises(UserError, match=f"versions of task gapft_synthetic: its {key} is"):
        run_planted_study(folder)


# Remaining work


def test_dry_run_reports_changed_recipe(folder):
    write_study_file(cells={"A": {"recipe": "x"}, "B": {"recipe": "y"}})
    recipe = read_study("study.yaml")
    for name in "ab":
        shutil.copytree(f"runs/{name}", f"study/cells/{name}")
    (folder / "study/study.yaml").write_text(Path("study.yaml").read_text())
    text = describe_study(recipe, folder / "study", resolve_recipe)
    assert "0 of 2 cells are left" in text
    assert "n = 110; N = 880" in text

    def resolve_changed(name):
        return resolve_recipe(name, training={"learning_rate": 9e-4})

    text = describe_study(recipe, folder / "study", resolve_changed)
    assert "2 of 2 cells are left" in text
    assert text.count("learning_rate 5e-05 → 0.0009") == 2
    assert "n = 110" not in text
    text = describe_study(
        recipe, folder / "study", lambda n: resolve_recipe(n, statistics={"replicates": 50})
    )
    assert text.count("left: its recipe was changed") == 2

    def run_cell(name, place):
        raise UserError(f"{name} is out of luck\nand more")

    with pytest.raises(GapftError, match=r"  A: A is out of luck\n  B: B is out of luck\n"):
        run_study(recipe, folder / "study", resolve_changed, run_cell, print)


# Unreadable files and special names


def test_draws_cell_names_with_dollars(folder):
    write_study_file(cells={r"A $\bad{ x$": {"run": "runs/a"}, "$5 … $6": {"run": "runs/b"}})
    run_planted_study(folder)
