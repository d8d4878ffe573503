"""``gapft eval``: lm-eval's own command with the bundled tasks added."""

from __future__ import annotations

import sys
from argparse import Namespace
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from gapft_harness.core.errors import UserError
from gapft_harness.lm_eval_bridge.task_file.opened_files import find_task_paths

#: Help for the options that ``gapft eval`` adds to lm_eval's.
_ADAPTERS = """
gapft eval:
  --adapters A,NAME=B   PEFT folders: evaluate the base and each adapter on it, loading the base
                        once; each evaluation gets its own folder in --output_path
"""

#: The start of lm-eval's error for an unknown task.
_UNKNOWN_TASK = "Tasks not found: "


def run_lm_eval(arguments: Sequence[str]) -> int:
    """Run lm-eval's command in this process, with all its flags and subcommands.

    The bundled tasks are added to the user's ``--include_path`` (or to the ``include_path`` of a
    ``--config`` file). If both have a task of one name, the user's task is used.

    Args:
        arguments: as after ``lm_eval`` on the command line; in addition ``--adapters`` with PEFT
            folders to evaluate beside the base (docs/comparing.md).

    Returns:
        The exit status.

    Raises:
        UserError: unknown task; a model folder without a model; missing or malformed data of a
            bundled task; or adapters that cannot be evaluated together.
        GapftError: an adapter was not applied.
    """
    from lm_eval._cli import HarnessCLI
    from lm_eval.utils import setup_logging

    from gapft_harness.lm_eval_bridge.code_eval import install_code_eval
    from gapft_harness.lm_eval_bridge.samplers.adapter_evaluation import (
        evaluate_in_turn,
        split_adapters,
    )

    # lm-eval reads sys.argv itself, to insert its default subcommand.
    adapters, arguments = split_adapters(arguments)
    saved_argv = sys.argv
    sys.argv = ["gapft eval", *arguments]
    try:
        setup_logging()
        install_code_eval()
        command = HarnessCLI()
        parsed = command.parse_args()
        if hasattr(parsed, "include_path"):
            parsed.include_path = _add_bundled_paths(parsed)
            check_model(parsed)
        if adapters and not hasattr(parsed, "model_args"):
            raise UserError("--adapters: only valid with an evaluation (lm_eval run)")
        if adapters:
            evaluate_in_turn(adapters, parsed, command.execute)
        else:
            command.execute(parsed)
    except SystemExit as end:
        if {"-h", "--help"}.intersection(arguments):
            print(_ADAPTERS)
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    except (KeyError, ValueError) as error:
        message = str(next(iter(error.args), ""))
        if not message.startswith(_UNKNOWN_TASK):
            raise
        raise UserError(f"--tasks: {message}; see gapft list tasks and lm_eval ls tasks") from error
    finally:
        sys.argv = saved_argv
    return 0


def _add_bundled_paths(parsed: Namespace) -> list[str]:
    """Return the bundled folders, then the user's: in lm-eval, a later folder overrides."""
    include_path: Any = parsed.include_path
    if include_path is None:
        include_path = _read_config_file(parsed).get("include_path")
    user_paths = (
        []
        if include_path is None
        else [include_path]
        if isinstance(include_path, str | Path)
        else list(include_path)
    )
    return [str(path) for path in [*find_task_paths(), *user_paths]]


#: lm-eval's names for its Transformers model.
_TRANSFORMERS = ("hf", "hf-auto", "huggingface")
#: Arguments with which the folder ``pretrained`` needs no config.json.
_CONFIG_ELSEWHERE = ("gguf_file", "subfolder", "config")


def _read_config_file(parsed: Namespace) -> dict[str, Any]:
    """Read the ``--config`` file; return an empty dict without one."""
    if not getattr(parsed, "config", None):
        return {}
    from lm_eval.config.evaluate_config import EvaluatorConfig

    return dict(EvaluatorConfig.load_yaml_config(parsed.config))


def check_model(parsed: Namespace) -> None:
    """Check the model's folder, since transformers' error for it would be about a hub name.

    Args:
        parsed: lm-eval's parsed arguments; those of a subcommand without a model are not checked.

    Raises:
        UserError: the folder does not exist, or it has no config.json.
    """
    if not hasattr(parsed, "model_args"):
        return
    options = _read_config_file(parsed) | {
        key: value for key, value in vars(parsed).items() if value
    }
    arguments = options.get("model_args") or {}
    if isinstance(arguments, str):
        from lm_eval.utils import simple_parse_args_string

        arguments = simple_parse_args_string(arguments)
    if options.get("model", "hf") not in _TRANSFORMERS or not isinstance(arguments, Mapping):
        return
    pretrained = arguments.get("pretrained")
    if not isinstance(pretrained, str) or any(arguments.get(key) for key in _CONFIG_ELSEWHERE):
        return
    folder = Path(pretrained)
    if folder.is_dir() and not (folder / "config.json").is_file():
        names = sorted(path.name for path in folder.iterdir())
        raise UserError(
            f"--model_args pretrained={pretrained}: not a model folder: expected a config.json; "
            f"found: {', '.join(names[:8]) or '(nothing)'}{', …' if len(names) > 8 else ''}"
        )
    if not folder.exists() and pretrained.startswith(("/", "./", "../")):
        raise UserError(
            f"--model_args pretrained={pretrained}: folder not found; expected a model's "
            "folder or the name of one on the hub"
        )
