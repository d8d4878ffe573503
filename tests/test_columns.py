"""Every table is made of declared columns, and docs/columns.md has every column."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from gapft_harness.cli.reference import ROOMS, column_reference

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "gapft_harness"

#: Where tables are made of columns, of what a plugin gave, and of what a page said.
MAKES_TABLES = {"report/frame.py"}


def calls(name: str) -> Iterator[tuple[Path, ast.Call]]:
    """Every call of what has this name, or is ``api``'s of this name."""
    for file in sorted(PACKAGE.rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text("utf-8"))):
            if isinstance(node, ast.Call) and ast.unparse(node.func) in (name, f"api.{name}"):
                yield file.relative_to(PACKAGE), node


def title(call: ast.Call) -> str | None:
    """A column's heading as a regular expression; None: it has none, or one that is handed in."""
    given = [*call.args[3:4], *(of.value for of in call.keywords if of.arg == "title")]
    match given:
        case [ast.Constant(value=str(text))] if text:
            return re.escape(text)
        case [ast.JoinedStr(values=parts)]:
            return "".join(
                re.escape(str(part.value)) if isinstance(part, ast.Constant) else ".+"
                for part in parts
            )
    return None


def test_no_table_is_written_by_hand() -> None:
    assert {str(file) for file, _ in calls("Table")} <= MAKES_TABLES


def test_the_reference_has_the_heading_of_every_column() -> None:
    page = column_reference().replace("\\|", "|")
    cells = re.findall(r"^\| (`.*?`) \| ", page, re.M)
    documented = [heading for cell in cells for heading in re.findall("`(.*?)`", cell)]
    titles = {(str(file), text) for file, call in calls("Column") if (text := title(call))}
    assert len(titles) > 200
    missing = [
        of for of in sorted(titles) if not any(re.fullmatch(of[1], one) for one in documented)
    ]
    assert missing == [], "these stand in no tuple of a module"
    assert {file.split("/")[0] for file, _ in titles} == {
        of for each in ROOMS.values() for of in each
    }
