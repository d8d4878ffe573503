"""The house: rooms and arrows. import-linter holds the arrows (pyproject.toml)."""

from __future__ import annotations

import ast
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "gapft_harness"
#: Where the product's Python lies. The package's links lead to the second and third.
FOLDERS = ("gapft_harness", "plugins", "tasks", "demo_policies", "engines")
#: Rooms that may import torch as soon as they are imported; elsewhere a function does.
TORCH_ROOMS = {"lm_eval_bridge", "training"}
#: What an ``if`` asks whose lines do not run when a file is imported.
LATER = {"TYPE_CHECKING", "__name__ == '__main__'"}


def contracts() -> dict[str, dict[str, Any]]:
    """The contracts of pyproject.toml by their names."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    return {one["name"]: one for one in settings["tool"]["importlinter"]["contracts"]}


def rooms() -> set[str]:
    """The package's folders with code, the links to the root among them."""
    return {path.parent.name for path in PACKAGE.glob("*/__init__.py")}


def python_files() -> list[Path]:
    """Every Python file of the product."""
    return sorted(file for name in FOLDERS for file in (ROOT / name).rglob("*.py"))


def broken(root: Path) -> tuple[int, set[str], str]:
    """The exit status of lint-imports in a folder, the contracts it finds broken, its output."""
    command = "from importlinter.cli import lint_imports_command; lint_imports_command()"
    result = subprocess.run(
        [sys.executable, "-c", command, "--no-cache"],
        cwd=root,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert "Contracts: " in result.stdout, result.stdout + result.stderr
    found = re.findall(r"^(.+) BROKEN\b", result.stdout, flags=re.MULTILINE)
    return result.returncode, set(found), result.stdout


def test_every_arrow_points_one_way() -> None:
    status, names, output = broken(ROOT)
    assert (status, names) == (0, set()), output
    assert f"{len(contracts())} kept" in output


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the package's Python files, its links followed, and of pyproject.toml."""
    folder = tmp_path_factory.mktemp("house")
    shutil.copy(ROOT / "pyproject.toml", folder)
    for file in python_files():
        if file.is_relative_to(PACKAGE):
            beside = folder / file.relative_to(ROOT)
            beside.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(file, beside)
    for link in PACKAGE.iterdir():
        if link.is_symlink():
            shutil.copytree(link, folder / PACKAGE.name / link.name, dirs_exist_ok=True)
    return folder


FLOORS, CIRCLES = "arrows point one way", "no circles, at any depth"
APART = "experiments know nothing of each other"
API = "plugins import gapft_harness.api alone"
OWN = "experiments import gapft_harness.api and the paper's statistics alone"
BRIDGE = "the bridge alone imports lm_eval"

#: A file, a line put at its end, and the contracts that this breaks.
TURNED = [
    ("core/streams.py", "import gapft_harness.analysis.pass_at_k", {FLOORS, CIRCLES}),
    ("analysis/pass_at_k.py", "import gapft_harness.demo", {FLOORS}),
    ("core/errors.py", "import gapft_harness.core.files", {CIRCLES}),
    ("experiments/allocation.py", "import gapft_harness.experiments.scaling", {APART}),
    ("experiments/scope.py", "import gapft_harness.report.tables", {OWN}),
    ("plugins/samplers/lm_eval_models.py", "import gapft_harness.core.records", {API}),
    ("report/tables.py", "import lm_eval", {BRIDGE}),
]


@pytest.fixture
def turned(copy: Path, request: pytest.FixtureRequest) -> Iterator[Path]:
    """The copy with one line more in one file; the file is as before in the end."""
    name, line = request.param
    file = copy / "gapft_harness" / name
    before = file.read_text("utf-8") if file.exists() else None
    file.parent.mkdir(exist_ok=True)
    file.write_text(f"{before or ''}\n{line}\n", "utf-8")
    yield copy
    file.unlink() if before is None else file.write_text(before, "utf-8")


@pytest.mark.parametrize(
    ("turned", "expected"),
    [pytest.param((file, line), names, id=f"{file}: {line}") for file, line, names in TURNED],
    indirect=["turned"],
)
def test_an_arrow_that_is_turned_is_found(turned: Path, expected: set[str]) -> None:
    status, names, output = broken(turned)
    assert (status, names) == (1, expected), output


@pytest.mark.parametrize("turned", [("attic/__init__.py", "")], indirect=True)
def test_a_room_that_has_no_floor_is_found(turned: Path) -> None:
    status, names, output = broken(turned)
    assert (status, names) == (1, {FLOORS}), output
    assert "attic" in output


def test_each_contract_is_broken_by_some_turned_arrow() -> None:
    assert set().union(*(names for _, _, names in TURNED)) == set(contracts())


def test_contracts_that_list_rooms_list_them_all() -> None:
    """A list cannot say "all but one"; a new room must stand in each."""

    def listed(name: str, key: str) -> set[str]:
        modules = {module.partition(".")[2] for module in contracts()[name][key]}
        return modules & rooms()

    links = {path.name for path in PACKAGE.iterdir() if path.is_symlink()}
    plugins = listed(API, "forbidden_modules")
    bridge = listed(BRIDGE, "source_modules")
    assert plugins == rooms() - links
    assert listed(OWN, "forbidden_modules") == plugins - {"experiments", "analysis"}
    assert bridge | {"lm_eval_bridge", "recipes"} == rooms()


def at_import(tree: ast.AST) -> Iterator[str]:
    """The modules that a file imports when it is imported itself."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.module or ""
        elif isinstance(node, ast.If) and ast.unparse(node.test) in LATER:
            yield from at_import(ast.Module(node.orelse, []))
        elif not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            yield from at_import(node)


def test_torch_is_imported_at_once_in_its_rooms_alone() -> None:
    importers = {
        file.relative_to(PACKAGE).parts[0]
        for file in [*PACKAGE.rglob("*.py"), *PACKAGE.glob("plugins/*/*.py")]
        for module in at_import(ast.parse(file.read_text("utf-8")))
        if module.partition(".")[0] == "torch"
    }
    assert importers == TORCH_ROOMS


def test_every_folder_of_plugins_is_a_package() -> None:
    """import-linter sees no module of a folder without ``__init__.py``."""
    folders = [folder for folder in (ROOT / "plugins").iterdir() if any(folder.glob("*.py"))]
    assert folders
    assert [folder.name for folder in folders if not (folder / "__init__.py").is_file()] == []
