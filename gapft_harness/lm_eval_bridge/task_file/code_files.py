"""The folders of tasks, and the Python files in them."""

from __future__ import annotations

from pathlib import Path

import gapft_harness
from gapft_harness.autoload import find_task_folders


def find_code_files(root: Path) -> dict[str, Path]:
    """Find all Python files of a folder of tasks, by their paths in it.

    A task may import any of them. Hidden folders and installed packages are left out.
    """
    files = {file.relative_to(root): file for file in sorted(root.rglob("*.py"))}
    return {
        name.as_posix(): file
        for name, file in files.items()
        if not any(part.startswith(".") or part == "site-packages" for part in name.parts)
    }


def tasks_path() -> Path:
    """Return the folder of the bundled tasks, for ``lm_eval --include_path``."""
    return (Path(gapft_harness.__file__).parent / "tasks").resolve()


def find_task_paths() -> list[Path]:
    """List the bundled folder, then those of the entry-point group ``lm_eval.tasks``."""
    return list(dict.fromkeys([tasks_path(), *(Path(p) for p in find_task_folders())]))
