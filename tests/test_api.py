"""The public face: what it names is there, what is heavy waits, and the rooms keep to it."""

from __future__ import annotations

import ast
import importlib
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from gapft_harness import api

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "gapft_harness"

#: What takes long to import, and what few plugins use.
HEAVY = {
    "torch", "lm_eval", "vllm", "ray", "pyarrow", "math_verify", "transformers", "numpy",
    "pydantic", "gapft_harness.sandbox", "gapft_harness.lm_eval_bridge",
}  # fmt: skip


@pytest.mark.parametrize("module", ["gapft_harness", "gapft_harness.api", "gapft_harness.cli.main"])
def test_importing_it_loads_nothing_heavy(module: str) -> None:
    program = f"import sys, {module}; print(*sorted({HEAVY!r} & sys.modules.keys()))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert (done.stdout.split(), done.stderr) == ([], "")


@pytest.mark.parametrize("name", api.__all__)
def test_every_name_is_there(name: str) -> None:
    if name == "VllmSampler":
        pytest.importorskip("vllm")
    assert getattr(api, name) is not None


def test_names_stand_once_and_a_misspelt_one_is_told_the_nearest() -> None:
    assert len(set(api.__all__)) == len(api.__all__)
    with pytest.raises(AttributeError, match=r"no 'Verdikt'; did you mean 'Verdict'\?"):
        _ = api.Verdikt  # type: ignore[attr-defined]


def test_a_type_checker_sees_what_is_loaded_when_it_is_asked_for() -> None:
    assert api._places().keys() <= set(api.__all__)
    assert {"Experiment", "Sandbox", "layout"} <= api._places().keys()


def test_what_is_public_is_one_object_under_both_names() -> None:
    for name, (module, there) in api._places().items():
        if module.startswith(("gapft_harness.sandbox", "gapft_harness.verification.p")):
            assert getattr(api, name) is getattr(importlib.import_module(module), there)


def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def guards(node: ast.AST) -> bool:
    """Whether it is ``if TYPE_CHECKING``, whose imports nobody makes."""
    return isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"


def starts(node: ast.AST) -> bool:
    """Whether it is what a module does when it is run, not imported."""
    return isinstance(node, ast.If) and ast.unparse(node.test) == "__name__ == '__main__'"


def imported(node: ast.AST) -> Iterator[str]:
    """What importing a module imports: all but the bodies of functions, and types."""
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
        return
    if guards(node) or starts(node):
        return
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        yield str(node.module)
    for inner in ast.iter_child_nodes(node):
        yield from imported(inner)


@pytest.mark.parametrize(
    ("program", "found"),
    [
        ("import torch", ["torch"]),
        ("class A:\n    from torch import nn", ["torch"]),
        (
            "try:\n    import torch.distributed\nexcept ImportError:\n    pass",
            ["torch.distributed"],
        ),
        ("def f():\n    import torch", []),
        ("if TYPE_CHECKING:\n    import torch", []),
        ("if __name__ == '__main__':\n    import torch", []),
    ],
)
def test_what_counts_as_imported(program: str, found: list[str]) -> None:
    assert list(imported(ast.parse(program))) == found


def test_torch_is_imported_when_needed_outside_the_bridge_and_training() -> None:
    rooms = [room for room in PACKAGE.iterdir() if room.name not in ("lm_eval_bridge", "training")]
    files = [file for room in rooms for file in ([room] if room.is_file() else room.rglob("*.py"))]
    found = [
        str(file.relative_to(PACKAGE))
        for file in files
        if file.suffix == ".py"
        if any(name.partition(".")[0] == "torch" for name in imported(parsed(file)))
    ]
    assert len(files) > 150
    assert found == []
