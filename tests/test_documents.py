"""Generated pages are current, links are valid, and figures are those of their tables."""

from __future__ import annotations

import csv
import re
from pathlib import Path

import numpy as np
import pytest
import typer.main

from gapft_harness.cli import reference
from gapft_harness.cli.main import app
from tests.study_script import import_study

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGES = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")),
    *sorted(DOCS.glob("*.md")),
    *sorted((ROOT / "gapft_harness").glob("demo/*/README.md")),
]


def test_generated_page_is_current() -> None:
    """``python -m gapft_harness.cli.reference`` writes the page."""
    assert reference.PAGE.read_text("utf-8") == reference.build_page()


def test_table_of_commands_has_every_command() -> None:
    rows = re.findall(r"^\| `gapft (\w+)` \|", (DOCS / "run.md").read_text(), re.MULTILINE)
    assert rows == [command.name for command in app.registered_commands]


#: A command with its options, up to the end of the line or of the code.
COMMAND = re.compile(r"(?<![\w/.-])gapft ([a-z]+)((?:[^`\n|&#\\]|\\\n)*)")


def test_documented_options_exist() -> None:
    """CHANGELOG names options that were removed."""
    commands = typer.main.get_command(app).commands  # type: ignore[attr-defined]
    unknown, count = [], 0
    for page in PAGES:
        for name, words in COMMAND.findall(page.read_text()) if page.stem != "CHANGELOG" else ():
            if name not in commands:
                assert not words.lstrip().startswith("-"), (page, name)
                continue
            options = {"--help"}.union(*(parameter.opts for parameter in commands[name].params))
            given = re.findall(r"(?<!\S)--[a-z][\w-]*", words)
            count += len(given)
            unknown += [f"{page.name}: gapft {name} {o}" for o in given if o not in options]
    assert unknown == []
    assert count > 80


def list_anchors(page: Path) -> set[str]:
    """Return the anchors of a page's headings."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading).lower().replace(" ", "-") for heading in headings}


def test_document_links_and_anchors_exist() -> None:
    broken = []
    for page in PAGES:
        for name, anchor in re.findall(r"\]\(([^)#\s]*)#?([^)\s]*)", page.read_text()):
            target = page.parent / name if name else page
            is_missing = not target.exists() or (anchor and anchor not in list_anchors(target))
            if "://" not in name and is_missing:
                broken.append(f"{page.name}: {name}#{anchor}")
    assert broken == []


# The study of a real model on the page Results

study = import_study()


def test_page_has_the_figures_of_its_tables() -> None:
    """``python docs/real-model/study.py page`` writes them."""
    page = study.PAGE.read_text()
    second = study.load_second()
    assert study.insert_parts(page, study.render(study.load_first(), second)) == page
    assert ("not here yet" in page) == (second is None)


def test_readme_has_the_figures_of_the_tables() -> None:
    second = study.load_second()
    tables = second or study.load_first()
    gain, difference = tables.change("gapft"), tables.change("gapft", "uniform")
    readme = (study.PAGE.parents[1] / "README.md").read_text()
    assert f"gained {100 * gain.value:.1f} points" in readme
    assert f"{str(difference).lstrip('+−')} {'more' if difference.value > 0 else 'less'}" in readme
    assert ("four draws" in readme) == (second is not None)


def test_predictions_are_the_stated_differences() -> None:
    """The page defines them; here they are counted from the table without the script's code."""
    table = study.FOLDER / "first" / "problems.csv"
    rows = list(csv.DictReader(table.open()))
    many = [row for row in rows if row["family"] in study.MANY]
    few = [row for row in rows if row["family"] not in study.MANY]

    def share(condition: str, of: list[dict[str, str]] = rows) -> float:
        column = condition if condition == "source" else f"{condition}-seed101"
        return sum(int(row[column]) for row in of) / len(of)

    def regressed(condition: str) -> float:
        lost = [r for r in rows if r["source"] == "1" and r[f"{condition}-seed101"] == "0"]
        return len(lost) / len(rows)

    expected = [
        *(share("gapft") - share(other) for other in ("uniform", "replay", "half_replay")),
        share("uniform") - share("unverified"),
        share("source") - share("wrong"),
        regressed("gapft") - regressed("replay"),
        (share("gapft", many) - share("uniform", many))
        - (share("gapft", few) - share("uniform", few)),
    ]
    values = [difference.value for difference in study.predict(study.load_first()).values()]
    assert values == pytest.approx(expected)


def test_second_study_has_its_draws_and_its_gate(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = study.load_first()
    monkeypatch.setattr(study, "SECOND", tmp_path)
    for seed in study.SEEDS:
        assert study.load_second() is None
        (tmp_path / f"draw-{seed}").mkdir()
        for name in ("problems.csv", "models.csv"):
            text = (study.FOLDER / "first" / name).read_text()
            (tmp_path / f"draw-{seed}" / name).write_text(text.replace("seed101", f"seed{seed}"))
    second = study.load_second()
    assert second.seeds["gapft"] == study.SEEDS
    parts = study.render(first, second)
    assert "gate is passed" in parts["gate"]
    assert parts["predictions"].count("**supported**") == 4  # 2, 6, 7 are not above 0
    second.passed[study.GATE] = second.passed[study.SOURCE]
    parts = study.render(first, second)
    assert "gate is **not** passed" in parts["gate"]
    assert parts["predictions"].count("uninformative") == 7
    (tmp_path / "draw-204" / "models.csv").write_text(
        (tmp_path / "draw-203/models.csv").read_text()
    )
    with pytest.raises(SystemExit, match="expected each condition with the seeds"):
        study.load_second()


def test_draws_have_equal_budgets() -> None:
    for tables in filter(None, (study.load_first(), study.load_second())):
        budgets = {
            (row["n"], row["steps"])
            for name, row in tables.models.items()
            if name != study.SOURCE and not name.startswith(study.GATE)
        }
        assert len(budgets) == 1


def test_draws_are_joined_if_their_source_is_the_same(tmp_path: Path) -> None:
    first = ROOT / "docs/real-model/first"
    for name in ("problems.csv", "models.csv"):
        text = (first / name).read_text()
        (tmp_path / name).write_text(text.replace("-seed101", "-seed102"))
    both = study.load(first, tmp_path)
    assert both.seeds["gapft"] == (101, 102)
    alone = study.load_first().change("gapft", "uniform")
    assert both.change("gapft", "uniform").draws.tolist() == [*alone.draws] * 2
    rows = (tmp_path / "problems.csv").read_text()
    (tmp_path / "problems.csv").write_text(rows.replace(",G,", ",S,", 1))
    with pytest.raises(SystemExit, match="state differs"):
        study.load(first, tmp_path)


@pytest.mark.parametrize(
    ("draws", "outcome"),
    [
        ([0.02, 0.03, 0.02, 0.03], "**supported**"),
        ([-0.04, 0.01, 0.03, 0.10], "undecided"),  # t over the draws is not above 0
        ([-0.03, -0.02, -0.03, -0.02], "**refuted**"),
        ([0.004, 0.005, 0.006, 0.005], "**supported**"),  # also below the smallest difference
    ],
)
def test_prediction_needs_both_intervals(draws: list[float], outcome: str) -> None:
    values = np.array(draws)
    replicates = values.mean() + np.linspace(-0.004, 0.004, 101)
    assert study.judge(study.Difference(values, replicates), 0.01) == outcome
