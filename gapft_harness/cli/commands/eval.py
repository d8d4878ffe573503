"""``gapft eval``: run lm_eval with the tasks of this package."""

from __future__ import annotations

from typing import Any

import typer

GROUP = "Measure and compare"
EXAMPLE = "gapft eval --model dummy --tasks gapft_demo --limit 5"
#: All flags, --help included, are passed to lm_eval.
SETTINGS: dict[str, Any] = {
    "context_settings": {"allow_extra_args": True, "ignore_unknown_options": True},
    "add_help_option": False,
}


def command(context: typer.Context) -> None:
    """Run lm_eval with the bundled tasks; takes all flags of lm_eval, and --adapters A,B."""
    from gapft_harness.lm_eval_bridge.command import run_lm_eval

    raise typer.Exit(run_lm_eval(context.args))
