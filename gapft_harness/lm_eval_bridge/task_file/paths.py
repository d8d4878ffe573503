"""Folders of task YAML: the bundled one, and those of installed packages."""

from __future__ import annotations

from pathlib import Path

import gapft_harness
from gapft_harness.autoload import entry_point_paths


def tasks_path() -> Path:
    """The folder of the bundled tasks, for ``lm_eval --include_path``."""
    return (Path(gapft_harness.__file__).parent / "tasks").resolve()


def installed_task_paths() -> list[Path]:
    """The bundled folder, then those of the entry-point group ``lm_eval.tasks``, each once."""
    return list(dict.fromkeys([tasks_path(), *(Path(p) for p in entry_point_paths())]))
