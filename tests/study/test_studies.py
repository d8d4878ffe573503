"""Studies of complete runs: their report, rejected inputs, and verify."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from gapft_harness.core.errors import GapftError, UserError
from gapft_harness.recipe.bundled import (
    find_recipe,
    list_bundled_recipes,
    list_bundled_studies,
)
from gapft_harness.run_directory.tables import response_schema
from gapft_harness.study.driver import describe_study, read_recipes, run_study
from gapft_harness.study.protocol import require_one_protocol
from gapft_harness.study.recipe import read_study
from gapft_harness.study.verify import verify_study
from tests.kit.command import succeed
from tests.report.written_run import build_response, write_rows
from tests.study.sealed import (
    build_cell,
    read_results,
    run_planted_study,
    update_recorded_hash,
    write_run_directory,
    write_study_file,
)


def test_writes_study_of_existing_runs(folder):
    page = run_planted_study(folder)
    assert page == folder / "study/report/index.html"
    results = read_results(folder)
    assert results["whole"]
    assert "scaling" not in results
    assert list(results["cells"]) == ["A", "B / b"]
    assert {p.name for p in page.parent.iterdir()} == {
        "index.html", "report.md", "results.json", "tables", "figures"
    }  # fmt: skip
    decided = [name for name in results["cells"]["A"]["files"] if name.startswith("decisions/")]
    assert len(decided) == 12
    text = (page.parent / "report.md").read_text()
    for title in (
        "Main comparison", "Equal-weight means", "Where the change comes from", "Training budgets",
        "What one decode is worth", "Share of a larger budget's gain", "Cells", "Settings",
    ):  # fmt: skip
        assert f"## {title}" in text
    before = page.read_bytes()
    assert run_planted_study(folder).read_bytes() == before


def test_reports_missing_seed_and_omits_means(folder):
    (folder / "runs/b/decisions/uniform-seed21.parquet").unlink()
    with pytest.raises(GapftError, match=r"1 of 2 cells(.|\n)*B / b: no decisions of uniform under "
                       r"seed 21") as error:  # fmt: skip
        run_planted_study(folder)
    assert error.value.exit_status == 1
    results = read_results(folder)
    assert (results["whole"], results["means"]) == (False, None)
    assert results["cells"]["B / b"]["lacks"] == ["no decisions of uniform under seed 21"]
    text = (folder / "study/report/report.md").read_text()
    assert "B / b: no decisions of uniform under seed 21" in text
    assert "Not available: some cells are incomplete" in text
    assert "| B / b | – | – | – | – | – | – | – |" in text
    verification = verify_study(folder / "study")
    assert not [line for line in verification.differences if line.startswith("report/")]


def test_reports_missing_seed_and_condition(folder):
    write_study_file(seeds=[13, 42], conditions=["gapft", "uniform", "random"])
    with pytest.raises(GapftError, match="A: it has no condition random; no decisions of every "
                       "condition under seed 42"):  # fmt: skip
        run_planted_study(folder)


@pytest.mark.parametrize("table", ["decisions", "selections"])
def test_reports_edited_cell_and_omits_means(folder, table):
    tables = folder / "runs/a" / table
    other = (tables / "gapft-seed21.parquet").read_bytes()
    (tables / "gapft-seed13.parquet").write_bytes(other + b" ")
    with pytest.raises(GapftError, match=r"A: .*gapft-seed13.parquet: was changed after it was"):
        run_planted_study(folder)
    assert read_results(folder)["means"] is None


def test_rejects_recorded_decisions_on_other_audit(folder):
    rows = [build_response(f"elsewhere-{i}", -1, "", "pass") for i in range(68)]
    file = "decisions/uniform-seed13.parquet"
    write_rows(folder / "runs/b" / file, rows, response_schema())
    update_recorded_hash(folder / "runs/b", file)
    with pytest.raises(GapftError, match="other problems than the audit"):
        run_planted_study(folder)


@pytest.mark.parametrize(
    ("section", "value", "difference"),
    [
        ("search", {"k": 4, "temperature": 1.0}, r"search.temperature 0.7 → 1.0"),
        (
            "training",
            {"learning_rate": 1e-4},
            r"training.learning_rate 5e-05 → 0.0001",
        ),
        ("budget", {"replay": 3}, r"budget.replay 0 → 3"),
        ("statistics", {"replicates": 100}, r"statistics.replicates 200 → 100"),
        (
            "conditions",
            {"gapft": {}, "replay": {}, "all_verified": {}, "uniform": {"n": 7}},
            r"conditions.uniform.n not set → 7",
        ),
    ],
)
def test_rejects_different_protocols_before_writing(folder, section, value, difference):
    shutil.rmtree(folder / "runs/b")
    write_run_directory(folder / "runs/b", build_cell(1), **{section: value})
    with pytest.raises(UserError, match=rf"'A' → 'B / b': {difference}"):
        run_planted_study(folder)
    assert not (folder / "study").exists()


def test_declared_start_tokens_must_agree(folder):
    def pair(*counts, training=({}, {})):
        for name, number, count, own in zip("ab", (0, 1), counts, training, strict=True):
            shutil.rmtree(folder / "runs" / name)
            model = {"args": {"pretrained": f"model {name}"}, "start_tokens": count}
            write_run_directory(
                folder / "runs" / name, build_cell(number), model=model, training=own
            )

    pair(1, 2)
    with pytest.raises(UserError, match=r"model.start_tokens 1 → 2"):
        run_planted_study(folder)
    pair(2, 2, training=({}, {"start_tokens": 1}))
    with pytest.raises(UserError, match=r"training.start_tokens 2 → 1"):
        run_planted_study(folder)
    pair(2, None)  # like Qwen, whose tokenizer has none, and Llama
    run_planted_study(folder)


def test_cells_may_differ_in_own_settings(folder):
    shutil.rmtree(folder / "runs/b")
    own = {"search": {"k": 4, "chunk": 9, "max_gen_toks": 7}, "verifier": {"params": {"rule": "x"}}}
    write_run_directory(
        folder / "runs/b", build_cell(1), **own, training={"gradient_checkpointing": True}
    )
    run_planted_study(folder)


def test_verify_reports_edited_report(folder):
    run_planted_study(folder)
    report = folder / "study/report"

    def list_report_differences():
        differences = verify_study(folder / "study").differences
        return [line for line in differences if line.startswith("report/")]

    # verify also reports that the planted runs have no task; only report files matter here
    assert list_report_differences() == []
    for name in ("index.html", "tables/means.csv", "figures/flows.svg"):
        whole = (report / name).read_bytes()
        (report / name).write_bytes(whole.replace(b"1", b"2", 1))
        assert [line.partition(":")[0] for line in list_report_differences()][:1] == [
            f"report/{name}"
        ]
        (report / name).write_bytes(whole)
    (report / "more.txt").write_text("x")
    (line,) = list_report_differences()
    assert line.startswith("report/more.txt: ")
    (report / "more.txt").unlink()
    path = folder / "runs/a/decisions/gapft-seed13.parquet"
    path.write_bytes((folder / "runs/a/decisions/gapft-seed21.parquet").read_bytes())
    update_recorded_hash(folder / "runs/a", "decisions/gapft-seed13.parquet")
    assert "report/results.json" in {line.partition(":")[0] for line in list_report_differences()}


def test_distinguishes_runs_from_studies(folder):
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


def test_reports_missing_run(folder):
    write_study_file(cells={"A": {"run": "runs/a"}, "C": {"run": "runs/c"}})
    text = describe_study(read_study("study.yaml"), folder / "study", print)
    assert "C\n  an existing run" in text
    assert "left: not run yet" in text
    assert "n = 100; N = 800" in text
    with pytest.raises(GapftError, match="C: not run yet"):
        run_planted_study(folder)


@pytest.mark.parametrize("name", sorted(list_bundled_studies()))
def test_bundled_studies_have_one_protocol(name):
    from gapft_harness.cli.options import Options
    from gapft_harness.cli.runs import resolve_recipe

    recipe = read_study(name)

    def resolve(cell):
        return resolve_recipe(
            Options(
                recipe.cells[cell].recipe, None, None, recipe.list_overrides(cell), (), recipe.seeds
            )
        )

    recipes = read_recipes(recipe, Path("nowhere"), resolve)
    require_one_protocol(recipe, recipes)
    assert set(recipes) == set(recipe.cells)
    assert name not in list_bundled_recipes()


def test_paper_study_has_six_logic_recipes(tmp_path):
    text = succeed("run", "paper/main", "--dry-run", cwd=tmp_path).stdout
    assert [c.recipe for c in read_study("paper/main").cells.values()] == [
        f"paper/{model}-{task}" for model in ("llama", "qwen", "mistral")
        for task in ("logiqa", "reclor")
    ]  # fmt: skip
    assert "6 of 6 cells are left; 12 adapters each" in text
    assert not (tmp_path / "runs").exists()
