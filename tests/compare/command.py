"""Run ``gapft compare`` in this process."""

from __future__ import annotations

from typer.testing import CliRunner, Result

from gapft_harness.cli.main import app
from gapft_harness.core.errors import GapftError


def run_compare(*arguments: object) -> Result:
    """Run ``gapft compare ARGUMENTS``; the caller checks the exit status."""
    return CliRunner().invoke(app, ["compare", *map(str, arguments)], env={"COLUMNS": "160"})


def read_refusal(*arguments: object) -> str:
    """Run a comparison that must end with status 2; return its message."""
    done = run_compare(*arguments)
    assert isinstance(done.exception, GapftError), done.output
    assert done.exception.exit_status == 2
    return str(done.exception)
