"""The folders of tasks, and the files of Python that a task is read from."""

from __future__ import annotations

import contextlib
import inspect
import os
import sys
import sysconfig
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import gapft_harness
from gapft_harness.autoload import find_task_folders


def find_code_files(task: Any, roots: Sequence[Path]) -> dict[str, Path]:
    """Find the Python files of a task by name: modules in its folders, and those of its functions.

    Args:
        task: the task as lm-eval built it.
        roots: folders of tasks; those of installed packages are ignored.
    """
    foreign_folders = _list_foreign_folders()
    roots = [root for root in roots if not _is_under(root / "a", foreign_folders)]
    loaded = {_find_source_file(module) for module in list(sys.modules.values())}
    files = {file for file in loaded if file is not None and _is_under(file, roots)}
    for function in filter(callable, _iterate_leaves(task.config.to_dict(keep_callable=True))):
        with contextlib.suppress(TypeError, OSError):
            file = Path(inspect.getsourcefile(function) or "").resolve()
            if file.is_file() and not _is_under(file, foreign_folders):
                files.add(file)
    return {_format_relative(file, roots): file for file in sorted(files)}


def _list_foreign_folders() -> list[Path]:
    """List the folders of the system, of Python and its packages, and of caches."""
    caches = ("HF_HOME", "XDG_CACHE_HOME", "HF_DATASETS_CACHE")
    places = [*sysconfig.get_paths().values(), sys.prefix, sys.base_prefix]
    places += [str(Path.home() / ".cache"), *(os.environ.get(name, "") for name in caches)]
    places += ["/proc", "/sys", "/dev", "/etc", "/usr", *map(str, find_task_paths())]
    places.append(str(Path(gapft_harness.__file__).parent))
    places += [path for path in sys.path if path.endswith(("site-packages", "dist-packages"))]
    with contextlib.suppress(ImportError):
        import lm_eval

        places += list(lm_eval.__path__)
    return [Path(place).resolve() for place in places if place]


def _is_under(file: Path, folders: Iterable[Path]) -> bool:
    return str(file).startswith(tuple(os.path.join(folder, "") for folder in folders))


def _find_source_file(module: Any) -> Path | None:
    name = getattr(module, "__file__", None)
    if not isinstance(name, str) or not name.endswith(".py"):
        return None
    # A module imported from a file has an absolute path; torch.classes has "_classes.py".
    return _resolve(name) if os.path.isabs(name) else None


@cache
def _resolve(name: str) -> Path:
    """Resolve a path, cached since thousands of modules are loaded."""
    return Path(name).resolve()


def _format_relative(file: Path, roots: Sequence[Path]) -> str:
    for root in roots:
        if root in file.parents:
            return file.relative_to(root).as_posix()
    return file.name


def _iterate_leaves(value: Any) -> Iterator[Any]:
    """Yield the values in nested lists and mappings."""
    if isinstance(value, Mapping):
        value = list(value.values())
    if isinstance(value, list | tuple):
        for inner in value:
            yield from _iterate_leaves(inner)
    else:
        yield value


def tasks_path() -> Path:
    """Return the folder of the bundled tasks, for ``lm_eval --include_path``."""
    return (Path(gapft_harness.__file__).parent / "tasks").resolve()


def find_task_paths() -> list[Path]:
    """List the bundled folder, then those of the entry-point group ``lm_eval.tasks``."""
    return list(dict.fromkeys([tasks_path(), *(Path(p) for p in find_task_folders())]))
