"""Record the files that a task and its data are read from.

A task may read data with any Python code, so its keys do not name all files. Python's audit hook
reports every file that is opened. Files of Python, of installed packages and of the hub's cache are
left out, since versions and revisions identify them.
"""

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
from gapft_harness.autoload import entry_point_paths

_CODE = (".py", ".pyc", ".so")

_opened: set[str] | None = None
_hooked = False


@contextlib.contextmanager
def watching() -> Iterator[set[str]]:
    """Collect the paths of files that this process opens for reading while the block runs."""
    global _opened, _hooked
    if not _hooked:
        sys.addaudithook(_see)
        _hooked = True
    _opened = set()
    try:
        yield _opened
    finally:
        _opened = None


def _see(event: str, arguments: tuple[Any, ...]) -> None:
    if _opened is None or event != "open":
        return
    path, mode, flags = arguments
    if isinstance(path, bytes):
        path = os.fsdecode(path)
    reads = not set("wxa+") & set(mode) if mode else not flags & (os.O_WRONLY | os.O_RDWR)
    if isinstance(path, str | os.PathLike) and reads:
        _opened.add(os.path.abspath(path))


def data_files(opened: Iterable[str], task: Any, roots: Sequence[Path]) -> list[Path]:
    """Find the task's YAML and data among the files that were opened while it was read.

    Args:
        opened: see ``watch_opened_files``.
        task: the task as lm-eval built it. Local files named in its ``dataset_kwargs`` count in any
            folder, even if they were not opened: a cached dataset does not open them.
        roots: folders of tasks; all files opened in them count.
    """
    names = [name for name in _leaves(task.config.dataset_kwargs) if isinstance(name, str)]
    paths = [folder / name for folder in (Path(), *roots) for name in names]
    named = {path.resolve() for path in paths if os.path.isfile(path)}
    foreign = _foreign()
    own = {
        file
        for file in (Path(path).resolve() for path in opened)
        if file.suffix not in _CODE
        and (_under(file, roots) or not _under(file, foreign))
        and file.is_file()
    }
    return sorted(named | own)


def code_files(task: Any, roots: Sequence[Path]) -> dict[str, Path]:
    """Find the Python files of a task by name: modules in its folders, and those of its functions.

    Args:
        task: the task as lm-eval built it.
        roots: folders of tasks; those of installed packages are ignored.
    """
    foreign = _foreign()
    roots = [root for root in roots if not _under(root / "a", foreign)]
    loaded = {_file(module) for module in list(sys.modules.values())}
    found = {file for file in loaded if file is not None and _under(file, roots)}
    for function in filter(callable, _leaves(task.config.to_dict(keep_callable=True))):
        with contextlib.suppress(TypeError, OSError):
            file = Path(inspect.getsourcefile(function) or "").resolve()
            if file.is_file() and not _under(file, foreign):
                found.add(file)
    return {_relative(file, roots): file for file in sorted(found)}


def _foreign() -> list[Path]:
    """List the folders of the system, of Python and its packages, and of caches."""
    caches = ("HF_HOME", "XDG_CACHE_HOME", "HF_DATASETS_CACHE")
    places = [*sysconfig.get_paths().values(), sys.prefix, sys.base_prefix]
    places += [str(Path.home() / ".cache"), *(os.environ.get(name, "") for name in caches)]
    places += ["/proc", "/sys", "/dev", "/etc", "/usr", *map(str, installed_task_paths())]
    places.append(str(Path(gapft_harness.__file__).parent))
    places += [path for path in sys.path if path.endswith(("site-packages", "dist-packages"))]
    with contextlib.suppress(ImportError):
        import lm_eval

        places += list(lm_eval.__path__)
    return [Path(place).resolve() for place in places if place]


def _under(file: Path, folders: Iterable[Path]) -> bool:
    return str(file).startswith(tuple(os.path.join(folder, "") for folder in folders))


def _file(module: Any) -> Path | None:
    name = getattr(module, "__file__", None)
    if not isinstance(name, str) or not name.endswith(".py"):
        return None
    # A module imported from a file has an absolute path; torch.classes has "_classes.py".
    return _imported(name) if os.path.isabs(name) else None


@cache
def _imported(name: str) -> Path:
    """Resolve a path, cached since thousands of modules are loaded."""
    return Path(name).resolve()


def _relative(file: Path, roots: Sequence[Path]) -> str:
    for root in roots:
        if root in file.parents:
            return file.relative_to(root).as_posix()
    return file.name


def _leaves(value: Any) -> Iterator[Any]:
    """Yield the values in nested lists and mappings."""
    if isinstance(value, Mapping):
        value = list(value.values())
    if isinstance(value, list | tuple):
        for inner in value:
            yield from _leaves(inner)
    else:
        yield value


def tasks_path() -> Path:
    """Return the folder of the bundled tasks, for ``lm_eval --include_path``."""
    return (Path(gapft_harness.__file__).parent / "tasks").resolve()


def installed_task_paths() -> list[Path]:
    """List the bundled folder, then those of the entry-point group ``lm_eval.tasks``."""
    return list(dict.fromkeys([tasks_path(), *(Path(p) for p in entry_point_paths())]))
