"""Which files a plugin's own code is in: its file, and the modules beside it that it imports."""

from __future__ import annotations

import ast
import sys
import sysconfig
from collections.abc import Iterator
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path

#: Folders of installed packages, wherever their environment is.
_PACKAGES = ("site-packages", "dist-packages")

#: Has a version of its own in keys.
_OURS = __name__.partition(".")[0]


def find_imported_files(file: Path) -> dict[str, Path]:
    """Find the modules that a Python file imports, directly or through others, without running it.

    Imports within functions count. What is imported by a name that is computed is not found.

    Args:
        file: a Python file.

    Returns:
        By module name, the files of those modules that belong neither to Python nor to an
        installed package nor to this one.
    """
    found: dict[str, Path] = {}
    specs: dict[str, ModuleSpec | None] = {}
    waiting = [("", file)]
    while waiting:
        for name in _read_imports(*waiting.pop()):
            for module in _with_parents(name):
                if module in specs:
                    continue
                specs[module] = spec = _find_spec(module, specs)
                if spec is None or spec.origin is None or not _is_own(Path(spec.origin)):
                    continue
                found[module] = Path(spec.origin)
                if spec.origin.endswith(".py"):
                    package = module if spec.submodule_search_locations else spec.parent
                    waiting.append((package or "", Path(spec.origin)))
    return dict(sorted(found.items()))


def _read_imports(package: str, file: Path) -> Iterator[str]:
    """Yield the names of what may be modules in a file's import statements."""
    try:
        tree = ast.parse(file.read_bytes())
    except (OSError, SyntaxError, ValueError):
        return  # importing it fails and says why
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            parents = package.split(".")
            above = parents[: len(parents) - node.level + 1] if node.level else []
            base = ".".join([*above, *([node.module] if node.module else [])])
            if base:
                yield base
                yield from (f"{base}.{alias.name}" for alias in node.names)


def _with_parents(name: str) -> Iterator[str]:
    parts = name.split(".")
    yield from (".".join(parts[: count + 1]) for count in range(len(parts)))


def _find_spec(module: str, specs: dict[str, ModuleSpec | None]) -> ModuleSpec | None:
    parent, _, _ = module.rpartition(".")
    if not parent:
        is_known = module in sys.stdlib_module_names or module in (_OURS, "__main__")
        return None if is_known else PathFinder.find_spec(module)
    above = specs[parent]
    if above is None or above.submodule_search_locations is None:
        return None
    if above.origin is not None and not _is_own(Path(above.origin)):
        return None  # an installed package is not looked through
    return PathFinder.find_spec(module, list(above.submodule_search_locations))


def _is_own(file: Path) -> bool:
    if any(name in file.parts for name in _PACKAGES):
        return False
    python = (sysconfig.get_path("stdlib"), sysconfig.get_path("platstdlib"))
    return file.is_file() and not any(file.is_relative_to(folder) for folder in python)
