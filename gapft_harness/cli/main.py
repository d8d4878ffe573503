"""The ``gapft`` command: parse arguments, call a command, print errors.

The modules that the commands call do the work.
"""

from __future__ import annotations

import errno
import logging
import os
import sys
from typing import Annotated, NoReturn

import typer

from gapft_harness.cli.commands import compare, doctor, export, gap, list_, run, store, verify
from gapft_harness.cli.interrupts import report_interrupts
from gapft_harness.cli.options import CONTEXT
from gapft_harness.core.errors import GapftError
from gapft_harness.core.extras import missing_package_error
from gapft_harness.core.processes import open_standard_streams, reduce_gc_frequency
from gapft_harness.version import __version__

app = typer.Typer(
    context_settings=CONTEXT,
    help="Learn from the gap between Pass@K and Pass@1, on top of lm-evaluation-harness.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)


@app.callback(invoke_without_command=True)
def _set_up(
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
) -> None:
    logging.captureWarnings(True)
    logging.basicConfig(level=logging.ERROR, format="%(name)s: %(message)s")
    if version:
        typer.echo(f"gapft-harness {__version__}")
        raise typer.Exit


for _module in (run, verify, compare, gap, export, list_, store, doctor):
    _name = _module.__name__.rpartition(".")[2].rstrip("_")
    app.command(_name, epilog=f"Example: {_module.EXAMPLE}")(_module.command)


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
    for library in ("HUB", "DATASETS"):  # their bars would disturb our display
        os.environ.setdefault(f"HF_{library}_DISABLE_PROGRESS_BARS", "1")
    _open_streams()
    try:
        with report_interrupts():
            sys.exit(app(standalone_mode=False))
    except GapftError as error:
        _exit_with_error(str(error), error.exit_status)
    except typer.TyperException as error:
        if not (message := error.format_message()):  # the help was printed
            sys.exit(error.exit_code)
        _exit_with_error(message, error.exit_code)
    except typer.Abort:
        _exit_with_error("aborted", 1)
    except ModuleNotFoundError as error:
        if (missing_package := missing_package_error(error)) is None:
            raise
        _exit_with_error(str(missing_package), missing_package.exit_status)
    except BrokenPipeError:
        sys.exit(0)
    except OSError as error:
        if error.errno != errno.ENAMETOOLONG:
            raise
        _exit_with_error(f"{error.filename}: {error.strerror}", 2)


def _exit_with_error(message: str, status: int) -> NoReturn:
    from gapft_harness.presentation.visible import make_visible

    typer.echo(f"gapft: {make_visible(message)}", err=True)
    sys.exit(status)


if __name__ == "__main__":
    main()
