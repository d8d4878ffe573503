"""Values of recipe keys in docs/paper.md match the paper's recipes."""

from __future__ import annotations

import re
from pathlib import Path

import yaml

from gapft_harness.recipe.bundled import list_bundled_recipes
from gapft_harness.recipe.reading import load_recipe

ROOT = Path(__file__).parents[1]


def read_sections() -> dict[str, list[list[str]]]:
    """Return the table rows of each subsection on what the paper leaves open, as cells."""
    page = (ROOT / "docs" / "paper.md").read_text("utf-8")
    text = page.partition("\n## What the paper leaves open\n")[2]
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
