"""``gapft demo``: run the whole method in a minute on a bundled model."""

from __future__ import annotations

from typing import Annotated

import typer

from gapft_harness.cli.options import (
    Condition,
    Limit,
    OptionalRunDir,
    Options,
    PluginFile,
    Seed,
    Set,
    build_settings,
)

GROUP = "Train on the gap"
EXAMPLE = "gapft demo"


def command(
    run_dir: OptionalRunDir = None,
    policy_path: Annotated[
        bool,
        typer.Option("--policy-path", help="print the folder of the model, for lm_eval, and exit"),
    ] = False,
    limit: Limit = None,
    overrides: Set = [],
    condition: Condition = [],
    seed: Seed = [],
    plugin: PluginFile = [],
) -> None:
    """Run the whole method on a small bundled model."""
    if policy_path:
        from gapft_harness.demo import find_policy as folder

        typer.echo(folder())
        return
    from gapft_harness.cli.summary import run_and_print

    overrides = build_settings(None, limit, overrides)
    choice = Options("demo", None, None, overrides, condition, seed, plugin)
    run_and_print(choice, run_dir)
