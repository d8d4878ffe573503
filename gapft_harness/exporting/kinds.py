"""The kinds of ``gapft export --to``."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from gapft_harness.core.errors import UserError, unknown_value_error
from gapft_harness.core.files import require_folder
from gapft_harness.exporting.dataset import write_dataset
from gapft_harness.exporting.merged import write_merged_model
from gapft_harness.exporting.training_sets import write_training_sets
from gapft_harness.run_directory.directory import RunDirectory

#: The values of ``--to``.
KINDS = ("trl", "dataset", "merged")


def export(
    run: RunDirectory,
    to: str,
    out: Path,
    arm: str = "",
    report_line: Callable[[str], None] = lambda line: None,
) -> list[Path]:
    """Export finished data of a run.

    Args:
        run: the run.
        to: ``trl``, ``dataset`` or ``merged``.
        out: the folder to write; it must be empty or missing.
        arm: for ``merged``, the name of the trained arm.
        report_line: called with a sentence on texts that give other token ids.

    Returns:
        The paths of the files.

    Raises:
        UserError: the kind is unknown, the folder is not empty, the arm is missing or needless, a
            file is missing or was changed, or the recipe was edited.
    """
    if to not in KINDS:
        raise unknown_value_error("--to", to, "format", KINDS)
    if arm and to != "merged":
        raise UserError(f"--arm {arm}: works only with --to merged; remove it for {to}")
    require_folder(out)
    if out.exists() and any(out.iterdir()):
        raise UserError(f"--out {out}: the folder is not empty; use another folder")
    run.require_recorded_recipe()
    if to == "merged":
        return write_merged_model(run, out, arm)
    return (
        write_dataset(run, out) if to == "dataset" else write_training_sets(run, out, report_line)
    )
