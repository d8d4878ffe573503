"""The command line: parse, call, print. What commands do lives in the modules they call."""

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
from gapft_harness.cli.interrupts import told
from gapft_harness.cli.options import CONTEXT, WholeHelp
from gapft_harness.core.errors import GapftError
from gapft_harness.core.extras import lacking
from gapft_harness.core.processes import collect_seldom, open_standard_streams
from gapft_harness.version import __version__

# What libraries log or warn of in the command's own process: no part of what it has to say.
#
# Such lines are held back, and shown if the command fails, since they may say why. Errors that a
# library logs are shown at once. What a job prints goes to a file of its worker in any case.


#: Lines that a failure shows.
_SHOWN = 20


class _Held(logging.Handler):
    """Keeps the last lines below an error; writes errors to standard error."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.lines: collections.deque[str] = collections.deque(maxlen=_SHOWN)
        self.setFormatter(logging.Formatter("%(name)s: %(message)s"))

    def emit(self, record: logging.LogRecord) -> None:
        """Takes one record."""
        line = self.format(record)
        if record.levelno >= logging.ERROR:
            print(line, file=sys.stderr)
        else:
            self.lines.append(line)


_HELD = _Held()


def hold_back() -> None:
    """From here on; where logging is set up already, it stays as it is."""
    logging.captureWarnings(True)
    if not logging.getLogger().handlers:
        logging.getLogger().addHandler(_HELD)


@contextlib.contextmanager
def shown_on_failure() -> Iterator[None]:
    """Shows the held lines if what is done inside fails."""
    try:
        yield
    except BrokenPipeError:
        raise
    except Exception:
        if _HELD.lines:
            print("The last that libraries said before this failure:", file=sys.stderr)
            print(*_HELD.lines, sep="\n", file=sys.stderr)
        raise


app = typer.Typer(
    cls=WholeHelp,
    context_settings=CONTEXT,
    help="Learn from the gap between Pass@K and Pass@1, on top of lm-evaluation-harness.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


@app.callback(invoke_without_command=True)
def _root(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="print the version and exit")] = False,
) -> None:
    if context.invoked_subcommand != "eval":  # lm_eval's lines are its own to show
        hold_back()
    if version:
        typer.echo(f"gapft-harness {__version__}")
        raise typer.Exit


for _found in pkgutil.iter_modules(commands.__path__):
    _name = _found.name
    _module = import_module(f"{commands.__name__}.{_name}")
    app.command(
        _name.rstrip("_"),
        epilog=f"Example: {_module.EXAMPLE}",
        rich_help_panel=_module.GROUP,
        **getattr(_module, "SETTINGS", {}),
    )(_module.command)


def _open_streams() -> None:
    """Those that are closed (``<&- >&-``) lead nowhere; libraries expect that they are there."""
    open_standard_streams()
    nowhere = sys.stdout is None
    sys.stdin = sys.stdin or open(0, closefd=False)  # noqa: SIM115 - lives as long as the process
    sys.stdout = sys.stdout or open(1, "w", closefd=False)  # noqa: SIM115
    sys.stderr = sys.stderr or open(2, "w", closefd=False)  # noqa: SIM115
    if nowhere:
        print("gapft: standard output is closed, so what is printed there is lost", file=sys.stderr)


def main() -> None:
    """The ``gapft`` command. Exit status 0, 2 for the user's mistake, 1 for a failure, 130."""
    collect_seldom()
    _open_streams()
    try:
        with told(), shown_on_failure():
            app()
    except GapftError as error:
        _end(error)
    except ModuleNotFoundError as error:
        if (lacks := lacking(error)) is None:
            raise
        _end(lacks)
    except BrokenPipeError:
        sys.exit(0)
    except OSError as error:
        if error.errno != errno.ENAMETOOLONG:
            raise
        typer.echo(f"gapft: {error.filename}: {error.strerror}", err=True)
        sys.exit(2)


def _end(error: GapftError) -> NoReturn:
    from gapft_harness.report.rendering.visible import visible

    typer.echo(f"gapft: {visible(str(error))}", err=True)
    sys.exit(error.exit_status)


if __name__ == "__main__":
    main()
