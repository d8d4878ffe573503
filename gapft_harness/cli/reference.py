"""docs/command-line.md, from what the commands themselves declare.

``python -m gapft_harness.cli.reference > docs/command-line.md`` writes it; a test holds it fresh.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import typer.main

from gapft_harness.cli.main import app
from gapft_harness.cli.options import GROUPS

_OPENING = """\
# The command line

This page is made from the commands' own help, by `python -m gapft_harness.cli.reference`.

To continue an interrupted command, give it again. Ctrl-C ends a command in an orderly way, a second
Ctrl-C at once; the processes that it started end with it. Exit status: 0 for success, 1 for a
failure, 2 for a mistake in the input, 130 after Ctrl-C. `gapft compare` ends with 1 only if a model
is worse than `--fail-if-worse` allows.

RECIPE is a file, a URL or the name of one that ships; RUN is a [run directory](run-directory.md), a
folder or a URL. Options may be written with underscores, as in lm_eval. If `--set` and another
option set the same key, `--set` wins. Without a recipe, settings are held against the run's own,
and refused if they would change what the run is bound to. `gapft --install-completion` lets the
shell complete commands, options, recipes and tasks.
"""


def reference() -> str:
    """The page."""
    commands: dict[str, Any] = typer.main.get_command(app).commands  # type: ignore[attr-defined]
    parts = [_OPENING]
    for group in GROUPS:
        parts.append(f"## {group}\n")
        for name in sorted(commands):
            if commands[name].rich_help_panel == group:
                parts += _command(name, commands[name])
    return "\n".join(parts)


def _command(name: str, command: Any) -> Iterator[str]:
    arguments = [p for p in command.params if p.param_type_name == "argument"]
    options = [p for p in command.params if p.param_type_name == "option"]
    words = "".join(f" {_metavar(each)}" for each in arguments)
    example = command.epilog.partition(": ")[2]
    yield f"### gapft {name}\n\n{command.help}\n\n```console\n{example}\n```\n"
    rows = [(f"`{_metavar(each)}`", each.help or "") for each in arguments]
    rows += [(_spelled(each), each.help or "") for each in options]
    if rows:
        yield f"| `gapft {name}{words}` | |\n|---|---|"
        yield "\n".join(f"| {left} | {_cell(right)} |" for left, right in rows) + "\n"


def _spelled(option: Any) -> str:
    given = "" if option.is_flag else f" {_metavar(option)}"
    return ", ".join(f"`{name}{given}`" for name in option.opts)


def _metavar(parameter: Any) -> str:
    return str(parameter.metavar or parameter.name.upper())


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


if __name__ == "__main__":
    print(reference(), end="")
