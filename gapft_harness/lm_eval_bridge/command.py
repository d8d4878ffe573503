"""``gapft eval``: lm-eval's own command with our tasks among those it knows."""

from __future__ import annotations

import sys
from argparse import Namespace
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from gapft_harness.core.errors import UserError, did_you_mean
from gapft_harness.lm_eval_bridge.task_file.opened_files import installed_task_paths

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

    from gapft_harness.lm_eval_bridge.code_eval import answer
    from gapft_harness.lm_eval_bridge.samplers.in_turn import evaluate_in_turn, split_adapters

    # lm-eval reads sys.argv itself, to insert its default subcommand.
    adapters, arguments = split_adapters(arguments)
    before = sys.argv
    sys.argv = ["gapft eval", *arguments]
    try:
        setup_logging()
        answer()
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
    if given is None:
        given = _of_file(parsed).get("include_path")
    users = [] if given is None else [given] if isinstance(given, str | Path) else list(given)
    return [str(path) for path in [*installed_task_paths(), *users]]


# Two common mistakes of ``gapft eval``, found before lm-eval starts: it would print a traceback.
#
# An unknown task name, and a ``pretrained`` folder that holds no model. All else is lm-eval's own.


#: The names under which lm-eval knows its Transformers model.
_TRANSFORMERS = ("hf", "hf-auto", "huggingface")
#: Arguments that let ``pretrained`` do without a config.json of its own.
_CONFIG_ELSEWHERE = ("gguf_file", "subfolder", "config")


def check_command(parsed: Namespace) -> None:
    """Checks what was given to ``lm_eval run``; another subcommand has nothing to check.

    Args:
        parsed: lm-eval's own arguments, with our folders in ``include_path``.

    Raises:
        UserError: a task's name is unknown, or the model's folder has no config.json.
    """
    if not hasattr(parsed, "model_args"):
        return
    given = _given(parsed)
    _check_model(given)
    _check_tasks(_names(given.get("tasks")), given.get("include_path") or [])


def _given(parsed: Namespace) -> dict[str, Any]:
    """The ``--config`` file's values under those of the command line, as lm-eval takes them."""
    return _of_file(parsed) | {key: value for key, value in vars(parsed).items() if value}


def _of_file(parsed: Namespace) -> dict[str, Any]:
    """What the ``--config`` file says; nothing without one."""
    if not getattr(parsed, "config", None):
        return {}
    from lm_eval.config.evaluate_config import EvaluatorConfig

    return dict(EvaluatorConfig.load_yaml_config(parsed.config))


def _check_model(given: Mapping[str, Any]) -> None:
    arguments = given.get("model_args") or {}
    if isinstance(arguments, str):
        from lm_eval.utils import simple_parse_args_string

        arguments = simple_parse_args_string(arguments)
    if given.get("model", "hf") not in _TRANSFORMERS or not isinstance(arguments, Mapping):
        return
    pretrained = arguments.get("pretrained")
    if not isinstance(pretrained, str) or any(arguments.get(key) for key in _CONFIG_ELSEWHERE):
        return
    folder = Path(pretrained)
    if folder.is_dir() and not (folder / "config.json").is_file():
        found = sorted(path.name for path in folder.iterdir())
        raise UserError(
            f"--model_args pretrained={pretrained}: is no model folder: it has no config.json; "
            f"found: {', '.join(found[:8]) or '(nothing)'}{', …' if len(found) > 8 else ''}"
        )
    if not folder.exists() and pretrained.startswith(("/", "./", "../")):
        raise UserError(
            f"--model_args pretrained={pretrained}: there is no such folder; expected a model's "
            "folder or the name of one on the hub"
        )


def _names(tasks: Any) -> list[str]:
    """The names to look up: a YAML file, a folder and a task written out are lm-eval's affair."""
    listed = [tasks] if isinstance(tasks, str) else tasks if isinstance(tasks, list) else []
    names = [name.strip() for item in listed if isinstance(item, str) for name in item.split(",")]
    return [n for n in names if n and not n.endswith((".yaml", ".yml")) and not Path(n).is_dir()]


def _check_tasks(names: Sequence[str], include_path: Any) -> None:
    from lm_eval.tasks import TaskManager

    paths = [include_path] if isinstance(include_path, str | Path) else list(include_path)
    manager = TaskManager(include_defaults=False, include_path=paths)
    ours = manager.all_tasks
    rest = [name for name in names if not _known(name, manager)]
    if not rest:
        return  # lm-eval's own index takes seconds: it is read only for a name not found without.
    manager = TaskManager(include_path=paths)
    for name in rest:
        if not _known(name, manager):
            raise UserError(f"--tasks: unknown task {name!r}; {near_tasks(name, ours, manager)}")


def _known(name: str, manager: Any) -> bool:
    """Whether a name or pattern finds a task; 0.5 gives back what it finds nothing for.

    It also takes ``TASK@FORMAT`` and ``GROUP::TASK``.
    """
    found = {each.partition("@")[0].partition("::")[0] for each in manager.match_tasks([name])}
    return not found.isdisjoint(manager.all_tasks)


def near_tasks(name: str, ours: Sequence[str], manager: Any) -> str:
    """Ends the message on an unknown task: the nearest name of all, and those that are ours."""
    import difflib

    near = difflib.get_close_matches(name, manager.all_tasks, n=1, cutoff=0.6)
    elsewhere = f"did you mean lm-eval's {near[0]!r}? " if near and near[0] not in ours else ""
    return f"{elsewhere}{did_you_mean(name, ours)} (and lm-eval's own tasks)"
