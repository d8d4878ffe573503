"""``gapft verify``: recompute what makes the arms of a run comparable."""

from __future__ import annotations

import typer

from gapft_harness.cli.options import PluginFile, RunDir
from gapft_harness.core.errors import GapftError

EXAMPLE = "gapft verify runs/demo"


def command(run_dir: RunDir, plugin: PluginFile = []) -> None:
    """Recompute from recorded files that arms differ only as declared; fail on a difference."""
    from gapft_harness.cli.display import Display
    from gapft_harness.stages.verify import run as verification
    from gapft_harness.study.verify import is_study, verify_study

    with Display() as display:
        verify_folder = verify_study if is_study(run_dir) else verification.verify
        result = verify_folder(run_dir, plugin, display.report_progress)
    if result.differences:
        count = len(result.differences)
        lines = [f"{run_dir}: {count} difference{'s' * (count > 1)}", *result.differences]
        raise GapftError("\n".join([*lines, *filter(None, [result.remark])]))
    missing = [f"not yet: {line}" for line in result.missing]
    if not result.checked:
        raise GapftError("\n".join([f"{run_dir}: nothing to verify yet", *missing]))
    for line in [*result.checked, *missing]:
        typer.echo(line)
    if missing:
        typer.echo("verified so far: existing files agree; the lines above list missing work")
    else:
        typer.echo("verified: the arms differ only in what the recipe declares")
