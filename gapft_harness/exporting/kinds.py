"""The kinds of ``gapft export --to``."""

from __future__ import annotations

from pathlib import Path

from gapft_harness.core.errors import UserError, unknown_value_error
from gapft_harness.core.files import require_folder
from gapft_harness.exporting.dataset import write_dataset
from gapft_harness.exporting.merged import write_merged_model
from gapft_harness.exporting.training_sets import write_training_sets
from gapft_harness.run_directory.directory import RunDirectory

#: The functions that write a run's data to a folder, by their value of ``--to``.
_WRITERS = {"trl": write_training_sets, "dataset": write_dataset}
_MERGED = "merged"


def export(run: RunDirectory, to: str, out: Path, arm: str = "") -> list[Path]:
    """Export finished data of a run.

    Args:
        run: the run.
        to: ``trl``, ``dataset`` or ``merged``.
        out: the folder to write; it must be empty or missing.
        arm: for ``merged``, the name of the trained arm.

    Returns:
        The paths of the files.

    Raises:
        UserError: the kind is unknown, the folder is not empty, the arm is missing or needless, a
            file is missing or was changed, or the recipe was edited.
    """
    if to not in (*_WRITERS, _MERGED):
        raise unknown_value_error("--to", to, "format", (*_WRITERS, _MERGED))
    if arm and to != _MERGED:
        raise UserError(f"--to {to}: remove --arm; it applies only to {_MERGED}")
    require_folder(out)
    if out.exists() and any(out.iterdir()):
        raise UserError(f"--out {out}: the folder is not empty; use another folder")
    run.require_recorded_recipe()
    if to == _MERGED:
        return write_merged_model(run, out, arm)
    return _WRITERS[to](run, out)
