"""The public API: its names are few, explained and used, and importing it loads nothing heavy."""

from __future__ import annotations

import ast
import inspect
import json
import re
import subprocess
import sys
from pathlib import Path
from textwrap import dedent
from types import FunctionType

import pytest

import gapft_harness
from gapft_harness import api

ROOT = Path(__file__).parents[1]

#: Modules that are slow to import or that few plugins use.
HEAVY = {
    "torch", "lm_eval", "vllm", "ray", "pyarrow", "sympy", "transformers", "numpy",
    "pydantic", "gapft_harness.sandbox", "gapft_harness.lm_eval_bridge",
}  # fmt: skip


@pytest.mark.parametrize("module", ["gapft_harness", "gapft_harness.api", "gapft_harness.cli.main"])
def test_import_loads_no_heavy_modules(module: str) -> None:
    program = f"import sys, {module}; print(*sorted({HEAVY!r} & sys.modules.keys()))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert (done.stdout.split(), done.stderr) == ([], "")


def test_at_most_sixty_names_are_public() -> None:
    assert len(api.__all__) <= 60
    assert len(api.__all__) == len({*api.__all__}), "a name is listed twice"
    described = set(
        re.findall(r'^    "(\w+)",  # \w', Path(api.__file__).read_text(), re.MULTILINE)
    )
    assert described == {*api.__all__}


#: The forms in which a plugin, an experiment or a page uses a name.
_IN_CODE = r"\b{0}\b"
_ON_A_PAGE = r"\bapi\.{0}\b|\bgapft_harness(\.api)? import [^\n]*\b{0}\b"


def _read_texts(*patterns: str) -> str:
    return "\n".join(path.read_text() for pattern in patterns for path in ROOT.glob(pattern))


def test_every_name_is_used() -> None:
    """Check bundled plugins, experiments, the example plugin, notebooks and other documents."""
    code = _read_texts(
        "plugins/**/*.py", "gapft_harness/experiments/**/*.py", "tests/example_plugin/*.py"
    )
    pages = _read_texts("docs/*.md", "docs/*.ipynb", "README.md")
    unused = [
        name
        for name in api.__all__
        if not re.search(_IN_CODE.format(name), code)
        and not re.search(_ON_A_PAGE.format(name), pages)
    ]
    assert unused == []


def _find_undocumented(value: FunctionType | type) -> list[str]:
    """List the undocumented parameters of a function or class, or "itself"."""
    text = value.__doc__ if isinstance(value, FunctionType) else vars(value).get("__doc__")
    if not text:
        return ["itself"]
    if isinstance(value, type):
        # Recipe keys and protocol methods have their own descriptions.
        own = hasattr(value, "model_fields") or getattr(value, "_is_protocol", False)
        if own or issubclass(value, Exception):
            return []
        text += value.__init__.__doc__ or ""  # type: ignore[misc]
    return [
        name
        for name in inspect.signature(value).parameters
        if not name.startswith("_") and not re.search(rf"^ +\**{name}: ", text, re.MULTILINE)
    ]


def test_public_docstrings_explain_each_parameter() -> None:
    """Skip constants and type aliases, which have no docstring; api.py describes them."""
    names = set(api.__all__) - {"hookimpl"}  # pluggy's own name
    values = {name: getattr(api, name) for name in names}
    explained = {
        name: _find_undocumented(value)
        for name, value in values.items()
        if isinstance(value, FunctionType | type) and value.__module__ not in ("builtins", "typing")
    }
    assert {name: faults for name, faults in explained.items() if faults} == {}
    assert {"Evidence", "open_run", "WorkerPool"} <= explained.keys()


#: What plugins, notebooks and scripts may import.
PUBLIC = {
    *("gapft_harness", "gapft_harness.api"),
    *(f"gapft_harness.{name}" for name in gapft_harness.__all__),
    *(f"gapft_harness.api.{name}" for name in api.__all__),
}


def find_private_imports(source: str) -> set[str]:
    """Return what a source imports of the harness and is not public."""
    imported = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom):
            imported |= {f"{node.module}.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.Import):
            imported |= {alias.name for alias in node.names}
    return {name for name in imported if name.split(".")[0] == "gapft_harness"} - PUBLIC


def test_documented_code_imports_public_names_only() -> None:
    """Check the example plugin, and the Python code of pages and notebooks."""
    pages = _read_texts("README.md", "docs/*.md")
    blocks = re.findall(r"^```python.*?\n(.*?)^```", pages, re.MULTILINE | re.DOTALL)
    assert len(blocks) > 10
    notebooks = [json.loads(path.read_text()) for path in ROOT.glob("docs/*.ipynb")]
    cells = [
        "".join(cell["source"])
        for notebook in notebooks
        for cell in notebook["cells"]
        if cell["cell_type"] == "code"
    ]
    assert cells
    plugins = [path.read_text() for path in ROOT.glob("tests/example_plugin/*.py")]
    for source in [*blocks, *cells, *plugins]:
        assert find_private_imports(dedent(source)) == set(), source
    text = pages + _read_texts("docs/*.ipynb")
    assert {*re.findall(r"\bapi\.([A-Za-z]\w+)", text)} - {*api.__all__, "py"} == set()
