"""``gapft eval``: the stock lm_eval, which finds our tasks."""

from __future__ import annotations

from typing import Any

import typer

GROUP = "Measure and compare"
EXAMPLE = "gapft eval --model dummy --tasks gapft_demo --limit 5"
#: lm_eval's flags are its own, its --help among them.
SETTINGS: dict[str, Any] = {
    "context_settings": {"allow_extra_args": True, "ignore_unknown_options": True},
    "add_help_option": False,
}


def command(context: typer.Context) -> None:
    """Run lm_eval with all of its own flags, and --adapters A,B; GapFT's tasks are found."""
    from gapft_harness.lm_eval_bridge.command import run_lm_eval

    raise typer.Exit(run_lm_eval(context.args))
