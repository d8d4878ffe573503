"""docs/architecture.md is true: its rooms and floors, its steps, its changes."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "gapft_harness"
PAGE = (ROOT / "docs" / "architecture.md").read_text("utf-8")
WISHES = [
    "A command", "A selector", "A verifier", "A log reader", "A sampler", "An executor",
    "A benchmark", "A recipe key", "An experiment", "A stage", "A statistic", "A figure",
]  # fmt: skip


def section(title: str) -> str:
    """What stands under a heading of the second level."""
    (found,) = re.findall(rf"^## {re.escape(title)}\n(.*?)(?=^## |\Z)", PAGE, re.M | re.S)
    return found


def rows(text: str) -> list[list[str]]:
    """The cells of a table's rows, without its heading."""
    lines = [line for line in text.splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[1:]]


def rooms() -> set[str]:
    """The package's folders with code, without the links to the root."""
    folders = {path.parent for path in PACKAGE.glob("*/__init__.py")}
    return {folder.name for folder in folders if not folder.is_symlink()}


def floors() -> dict[str, int]:
    """Every room's floor by import-linter's contract, from 1 for the lowest."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    contracts = settings["tool"]["importlinter"]["contracts"]
    (layers,) = [one["layers"] for one in contracts if one["type"] == "layers"]
    return {
        room: floor
        for floor, layer in enumerate(reversed(layers), start=1)
        for room in layer.split(" | ")
    }


def wishes() -> dict[str, tuple[list[str], list[str]]]:
    """Each wish's files in order, and its tests."""
    found = {}
    for part in section("Where do I change …?").split("\n### ")[1:]:
        name, _, text = part.partition("\n")
        files = re.findall(r"^\d\. `(.+?)`", text, re.M)
        (tests,) = re.findall(r"^- Test: (.*)$", text, re.M)
        found[name] = (files, re.findall(r"`(.+?)`", tests))
    return found


def test_the_table_has_every_room_on_its_floor_and_no_other() -> None:
    told = {room.strip("`"): int(floor) for floor, room, *_ in rows(section("Rooms"))}
    assert told == floors()
    assert told.keys() == rooms()
    assert [*told.values()] == sorted(told.values(), reverse=True)


def test_each_step_of_a_response_is_in_the_room_that_it_names() -> None:
    steps = rows(section("The way of one response"))
    assert [step for step, *_ in steps] == [str(n) for n in range(1, len(steps) + 1)]
    for *_, room, file in steps:
        assert file.startswith(f"`gapft_harness/{room}/")


def test_each_wish_names_files_and_tests_that_exist() -> None:
    assert [*wishes()] == WISHES
    for name, (files, tests) in wishes().items():
        assert files, name
        assert tests, name
        for file in (*files, *tests):
            assert (ROOT / file).is_file(), f"{name}: {file}"
        assert all(Path(test).name.startswith("test_") for test in tests), name
