"""What a study refuses when its folder, its cells or its recipe are not what it takes them for."""

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
from tests.study.sealed import cell, content, recipe_of, seal, study, write_study_file


def resolve(name, **changes):
    """The recipe of a cell that names one: A is run as ``runs/a``, B as ``runs/b``."""
    return check_recipe(
        recipe_of(cell("AB".index(name)), **changes), "planted"
    ).with_absolute_paths()


# The folder


def test_nobody_elses_folder_becomes_a_studys(folder):
    chapter = folder / "study/report/chapter1.tex"
    chapter.parent.mkdir(parents=True)
    chapter.write_text("my thesis")
    with pytest.raises(UserError, match=r"contains files but no study\.yaml"):
        study(folder)
    with pytest.raises(UserError, match=r"contains files but no study\.yaml"):
        describe_study(read_study("study.yaml"), folder / "study", pytest.fail)
    # nor does it with a study's file beside
    shutil.copy("study.yaml", "study/study.yaml")
    with pytest.raises(UserError, match=r"report: .* chapter1\.tex"):
        study(folder)
    chapter.rename(chapter.with_name("index.html"))
    with pytest.raises(UserError, match=r"report: .* results\.json"):
        study(folder)
    assert [p.name for p in folder.glob("study/*")] in (
        ["report", "study.yaml"],
        ["study.yaml", "report"],
    )


def test_a_folder_that_a_kill_left_before_its_study_file_is_gone_on_with(folder):
    (folder / "study").mkdir()
    for name in ("run.lock", ".study.yaml.partial"):
        (folder / "study" / name).write_text("")
    study(folder)


def test_a_study_file_that_somebody_wrote_is_never_overwritten(folder):
    own = folder / "study/study.yaml"
    own.parent.mkdir()
    text = "# mine\n" + Path("study.yaml").read_text()
    own.write_text(text)
    study(folder)
    assert own.read_text() == text  # and its paths are as they were
    write_study_file(seeds=[13])
    with pytest.raises(
        UserError, match=r"study\.yaml: was not written by this command(.|\n)*: seeds"
    ):
        study(folder)
    assert own.read_text() == text


def test_a_study_file_that_the_command_wrote_follows_the_study(folder):
    study(folder)
    write_study_file(seeds=[13])
    study(folder)
    assert read_study("study/study.yaml").seeds == (13,)


# One protocol


def test_a_run_that_comes_later_is_held_to_the_protocol_too(folder):
    write_study_file(cells={"A": {"recipe": "x"}, "B": {"run": "runs/late"}})

    def run_cell(name, place):
        shutil.copytree("runs/a", place)
        seal(folder / "runs/late", cell(1), training={"learning_rate": 1e-3})

    with pytest.raises(UserError, match=r"training.learning_rate 5e-05 → 0.001"):
        run_study(read_study("study.yaml"), folder / "study", resolve, run_cell, print)
    assert not (folder / "study/report").exists()


def test_verify_finds_a_cell_that_was_replaced_by_another_protocols(folder):
    study(folder)
    shutil.rmtree(folder / "runs/b")
    seal(folder / "runs/b", cell(1), training={"learning_rate": 1e-3})
    found = verify_study(folder / "study").differences
    assert [of for of in found if of.startswith("report: the cells of a study must have one")]


def test_verify_says_which_whole_run_a_report_leaves_out(folder):
    shutil.move(folder / "runs/b", folder / "away")
    with pytest.raises(GapftError, match="1 of 2 cells are incomplete"):
        study(folder)

    def told():
        found = verify_study(folder / "study").differences
        return [line for line in found if "report" in line]

    assert told() == []
    shutil.move(folder / "away", folder / "runs/b")
    (line,) = told()
    assert "cell 'B / b': the report leaves it out (not run yet)" in line
    assert "run gapft study again" in line


def test_a_recipe_that_was_edited_in_a_run_is_not_what_it_was_made_by(folder):
    shutil.rmtree(folder / "runs/b")
    recipe = seal(folder / "runs/b", cell(1), training={"learning_rate": 1e-3}) / "recipe.yaml"
    recipe.write_text(recipe.read_text().replace("learning_rate: 0.001", "learning_rate: 5.0e-05"))
    with pytest.raises(GapftError, match=r"B / b: its recipe.yaml is not the (.|\n)*learning_rate"):
        study(folder)
    assert content(folder)["means"] is None


def change_budget(folder, arm, **changes):
    """Edits what a run's manifest says of an arm's budget, and nothing else."""
    manifest = folder / "manifest.json"
    changed = json.loads(manifest.read_text())
    changed["budgets"][arm].update(changes)
    manifest.write_text(json.dumps(changed))


def test_verdicts_are_not_counted_by_an_edited_manifest(folder):
    manifest = folder / "runs/a/manifest.json"
    changed = json.loads(manifest.read_text())
    changed["verdict_counts"]["pool"] = {"pass": 5, "fail": 1}  # so that nothing looks amiss
    manifest.write_text(json.dumps(changed))
    with pytest.raises(GapftError, match=r"A: .*verdict_counts of pool are .*'pass': 5.* holds "):
        study(folder)


def test_a_dry_run_has_its_budget_of_the_sealed_set(folder):
    change_budget(folder / "runs/a", "gapft-seed13", n=110, exposures=880, steps=55)
    said = describe_study(read_study("study.yaml"), folder / "study", pytest.fail)
    assert said.count("n = 110; N = 880; J = 55") == 1  # B's own
    assert "the budget of gapft-seed13 has n = 110, and 100 is sealed" in said


def test_only_a_budget_of_the_leads_size_goes_unstarred_in_table_1(folder):
    """A comparison group of its own is matched among its conditions, not with the lead."""
    conditions = {name: {} for name in ("gapft", "uniform", "replay")}
    for number, name in enumerate("ab"):
        of = cell(number)
        arms = tuple(replace(arm, matched=True) for arm in of.arms)
        shutil.rmtree(folder / "runs" / name)
        seal(
            folder / "runs" / name,
            replace(of, arms=arms),
            conditions={**conditions, "all_verified": {"selector": "uniform", "n": 295}},
        )
    study(folder)
    text = (folder / "study/report/report.md").read_text()
    assert "* Not budget-matched: all verified." in text


@pytest.mark.parametrize(("key", "value"), [("fingerprint", "f" * 12), ("version", 2)])
def test_cells_of_one_task_are_of_one_version_of_it(folder, key, value):
    manifest = folder / "runs/b/manifest.json"
    changed = json.loads(manifest.read_text())
    changed["task"][key] = value
    manifest.write_text(json.dumps(changed))
    with pytest.raises(UserError, match=f"versions of task gapft_synthetic: its {key} is"):
        study(folder)


# What is left


def test_a_dry_run_tells_what_a_changed_recipe_leaves(folder):
    write_study_file(cells={"A": {"recipe": "x"}, "B": {"recipe": "y"}})
    of = read_study("study.yaml")
    for name in "ab":
        shutil.copytree(f"runs/{name}", f"study/cells/{name}")
    (folder / "study/study.yaml").write_text(Path("study.yaml").read_text())
    said = describe_study(of, folder / "study", resolve)
    assert "0 of 2 cells are left" in said
    assert "n = 110; N = 880" in said

    def faster(name):
        return resolve(name, training={"learning_rate": 9e-4})

    said = describe_study(of, folder / "study", faster)
    assert "2 of 2 cells are left" in said
    assert said.count("learning_rate 5e-05 → 0.0009") == 2
    assert "n = 110" not in said
    said = describe_study(of, folder / "study", lambda n: resolve(n, statistics={"replicates": 50}))
    assert said.count("left: its recipe was changed") == 2

    def run_cell(name, place):
        raise UserError(f"{name} is out of luck\nand more")

    with pytest.raises(GapftError, match=r"  A: A is out of luck\n  B: B is out of luck\n"):
        run_study(of, folder / "study", faster, run_cell, print)


# What cannot be read or drawn


def test_a_place_that_cannot_be_is_a_run_that_is_not_there(folder):
    write_study_file(cells={"A": {"run": "runs/a"}, "C": {"run": "c" * 5000}})
    with pytest.raises(GapftError, match="C: not run yet"):
        study(folder)
    assert "C: not run yet" in verify_study(folder / "study").missing
    write_study_file(cells={"A": {"recipe": "c" * 5000}})
    assert read_study("study.yaml").cells["A"].recipe == "c" * 5000


def test_a_recipe_that_cannot_be_read_is_told(folder):
    recipe = folder / "runs/b/recipe.yaml"
    recipe.unlink()
    recipe.symlink_to("/proc/self/mem")  # a file whose first byte is an input/output error
    with pytest.raises(GapftError, match=r"B / b: .*recipe\.yaml: cannot be read: "):
        study(folder)


def test_names_with_dollars_are_drawn_as_they_are(folder):
    write_study_file(cells={r"A $\bad{ x$": {"run": "runs/a"}, "$5 … $6": {"run": "runs/b"}})
    study(folder)
