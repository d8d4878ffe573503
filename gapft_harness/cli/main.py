"""The ``gapft`` command: parse arguments, call a command, print errors.

The modules that the commands call do the work.
"""

from __future__ import annotations

import collections
import contextlib
import errno
import logging
import pkgutil
import sys
from collections.abc import Iterator
from importlib import import_module
from typing import Annotated, NoReturn

import typer

from gapft_harness.cli import commands
from gapft_harness.cli.interrupts import report_interrupts
from gapft_harness.cli.options import CONTEXT, GroupedHelp
from gapft_harness.core.errors import GapftError
from gapft_harness.core.extras import missing_package_error
from gapft_harness.core.processes import open_standard_streams, reduce_gc_frequency
from gapft_harness.version import __version__

# Log lines and warnings of libraries in the command's own process are held back. They are shown if
# the command fails, since they may explain why. Errors that a library logs are shown at once. The
# output of a job always goes to a file of its worker.


#: The most lines of libraries that are shown after a failure.
_MAX_LINES = 20


class _HeldMessages(logging.Handler):
    """Keep the last messages below the level of an error; print errors to standard error."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.lines: collections.deque[str] = collections.deque(maxlen=_MAX_LINES)
        self.setFormatter(logging.Formatter("%(name)s: %(message)s"))

    def emit(self, record: logging.LogRecord) -> None:
        """Keep or print one record."""
        line = self.format(record)
        if record.levelno >= logging.ERROR:
            print(line, file=sys.stderr)
        else:
            self.lines.append(line)


_HELD_MESSAGES = _HeldMessages()


def hold_library_messages() -> None:
    """Hold back messages of libraries from now on; keep logging that is already configured."""
    logging.captureWarnings(True)
    if not logging.getLogger().handlers:
        logging.getLogger().addHandler(_HELD_MESSAGES)


@contextlib.contextmanager
def show_held_on_failure() -> Iterator[None]:
    """Print the held messages if the block fails."""
    try:
        yield
    except BrokenPipeError:
        raise
    except Exception:
        if _HELD_MESSAGES.lines:
            print("Last messages of libraries before this failure:", file=sys.stderr)
            print(*_HELD_MESSAGES.lines, sep="\n", file=sys.stderr)
        raise


app = typer.Typer(
    cls=GroupedHelp,
    context_settings=CONTEXT,
    help="Learn from the gap between Pass@K and Pass@1, on top of lm-evaluation-harness.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


@app.callback(invoke_without_command=True)
def _set_up(
    version: Annotated[bool, typer.Option("--version", help="print the version and exit")] = False,
) -> None:
    hold_library_messages()
    if version:
        typer.echo(f"gapft-harness {__version__}")
        raise typer.Exit


for _module_info in pkgutil.iter_modules(commands.__path__):
    _name = _module_info.name
    _module = import_module(f"{commands.__name__}.{_name}")
    app.command(
        _name.rstrip("_"),
        epilog=f"Example: {_module.EXAMPLE}",
        rich_help_panel=_module.GROUP,
    )(_module.command)


def _open_streams() -> None:
    """Replace closed standard streams (``<&- >&-``), which libraries expect to exist."""
    open_standard_streams()
    is_stdout_closed = sys.stdout is None
    sys.stdin = sys.stdin or open(0, closefd=False)  # noqa: SIM115 - lives as long as the process
    sys.stdout = sys.stdout or open(1, "w", closefd=False)  # noqa: SIM115
    sys.stderr = sys.stderr or open(2, "w", closefd=False)  # noqa: SIM115
    if is_stdout_closed:
        print("gapft: standard output is closed; its content is lost", file=sys.stderr)


def main() -> None:
    """Run the ``gapft`` command.

    Exit status: 0 for success, 1 for a failure, 2 for a mistake of the user, 130 after Ctrl-C.
    """
    reduce_gc_frequency()
    _open_streams()
    try:
        with report_interrupts(), show_held_on_failure():
            app()
    except GapftError as error:
        _exit_with_error(error)
    except ModuleNotFoundError as error:
        if (missing_package := missing_package_error(error)) is None:
            raise
        _exit_with_error(missing_package)
    except BrokenPipeError:
        sys.exit(0)
    except OSError as error:
        if error.errno != errno.ENAMETOOLONG:
            raise
        typer.echo(f"gapft: {error.filename}: {error.strerror}", err=True)
        sys.exit(2)


def _exit_with_error(error: GapftError) -> NoReturn:
    from gapft_harness.presentation.visible import make_visible

    typer.echo(f"gapft: {make_visible(str(error))}", err=True)
    sys.exit(error.exit_status)


if __name__ == "__main__":
    main()
