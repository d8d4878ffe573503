"""The kinds of ``gapft export --to``."""

from __future__ import annotations

from pathlib import Path

from gapft_harness.core.errors import UserError, did_you_mean
from gapft_harness.core.files import require_folder
from gapft_harness.exporting.dataset import write_dataset
from gapft_harness.exporting.training_sets import write_training_sets
from gapft_harness.run_directory.directory import RunDirectory
from gapft_harness.run_directory.recipe_changes import require_recorded_recipe

#: The functions that write a run's data to a folder, by their value of ``--to``.
KINDS = {"trl": write_training_sets, "dataset": write_dataset}


def export(run: RunDirectory, to: str, out: Path) -> list[Path]:
    """Export sealed data of a run.

    Args:
        run: the run.
        to: a key of ``KINDS``.
        out: the folder to write; it must be empty or missing.

    Returns:
        The paths of the files.

    Raises:
        UserError: the kind is unknown, the folder is not empty, a file is missing or was changed
            after it was sealed, or the recipe differs from the manifest's.
    """
    if to not in KINDS:
        raise UserError(f"--to {to}: {did_you_mean(to, KINDS)}")
    require_folder(out)
    if out.exists() and any(out.iterdir()):
        raise UserError(f"--out {out}: the folder is not empty; use another folder")
    require_recorded_recipe(run.path, run.recipe, run.manifest())
    return KINDS[to](run, out)
