"""The figures of the study of a real model on the page Results are those of its tables."""

from __future__ import annotations

from tests.study_script import import_study

study = import_study()


def test_page_has_the_figures_of_its_tables() -> None:
    """``python docs/real-model/study.py page`` writes them."""
    page = study.PAGE.read_text()
    assert study.insert_parts(page, study.render(study.load())) == page


def test_readme_has_the_figures_of_the_tables() -> None:
    tables = study.load()
    gain, difference = tables.change("gapft"), tables.change("gapft", "uniform")
    readme = (study.PAGE.parents[1] / "README.md").read_text()
    assert f"gained {100 * gain.value:.1f} points" in readme
    assert str(difference).removeprefix("+") in readme


def test_draws_have_equal_budgets() -> None:
    models = study.load().models
    budgets = {
        (row["n"], row["steps"])
        for name, row in models.items()
        if name != study.SOURCE and not name.startswith(study.GATE)
    }
    assert len(budgets) == 1
