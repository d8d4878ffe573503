"""``gapft eval``: lm-eval's own command with our tasks among those it knows."""

from __future__ import annotations

import sys
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from gapft_harness.core.errors import UserError
from gapft_harness.lm_eval_bridge.command_checks import check_command
from gapft_harness.lm_eval_bridge.task_file.paths import installed_task_paths

#: What ``gapft eval`` takes besides lm_eval's own flags.
_ADAPTERS = """
gapft eval:
  --adapters A,NAME=B   PEFT folders, each of which is evaluated on the base that is loaded once,
                        and the base too; each has a folder of its own in --output_path
"""


def run_lm_eval(arguments: Sequence[str]) -> int:
    """Runs lm-eval's command in this process, every flag and subcommand included.

    The bundled tasks are added to the user's own ``--include_path`` (or to the ``include_path``
    of a ``--config`` file), which goes on to win where names clash.

    Args:
        arguments: as after ``lm_eval`` on the command line, and ``--adapters`` with PEFT folders,
            each of which is evaluated beside the base (docs/comparing.md).

    Returns:
        The exit status.

    Raises:
        UserError: a task's name is unknown, the model's folder holds no model, or a task of ours
            finds its data missing or malformed; or the adapters cannot be evaluated together.
        GapftError: an adapter was not applied.
    """
    from lm_eval._cli import HarnessCLI
    from lm_eval.utils import setup_logging

    from gapft_harness.lm_eval_bridge.samplers.in_turn import evaluate_in_turn, split_adapters

    # lm-eval reads sys.argv itself, to insert its default subcommand.
    adapters, arguments = split_adapters(arguments)
    before = sys.argv
    sys.argv = ["gapft eval", *arguments]
    try:
        setup_logging()
        command = HarnessCLI()
        parsed = command.parse_args()
        if hasattr(parsed, "include_path"):
            parsed.include_path = _with_ours(parsed)
            check_command(parsed)
        if adapters and not hasattr(parsed, "model_args"):
            raise UserError("--adapters: goes with an evaluation alone")
        if adapters:
            evaluate_in_turn(adapters, parsed, command.execute)
        else:
            command.execute(parsed)
    except SystemExit as end:
        if {"-h", "--help"}.intersection(arguments):
            print(_ADAPTERS)
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    finally:
        sys.argv = before
    return 0


def _with_ours(parsed: Namespace) -> list[str]:
    """Our folders, then the user's: for lm-eval, a later folder's task wins."""
    given: Any = parsed.include_path
    if given is None and getattr(parsed, "config", None):
        from lm_eval.config.evaluate_config import EvaluatorConfig

        given = EvaluatorConfig.load_yaml_config(parsed.config).get("include_path")
    users = [] if given is None else [given] if isinstance(given, str | Path) else list(given)
    return [str(path) for path in [*installed_task_paths(), *users]]
