"""``gapft compare``: compare sample logs of lm_eval before and after training."""

from __future__ import annotations

import contextlib
import errno
import os
import sys
import traceback
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from gapft_harness.cli.options import Format, PluginFile, parse_folder
from gapft_harness.core.errors import GapftError, UserError, describe_error, quote_unprintable

GROUP = "Measure and compare"
EXAMPLE = "gapft compare runs/before runs/after"


def command(
    before: Annotated[
        str | None,
        typer.Argument(
            metavar="BEFORE", help="sample logs of the model before: a file, folder or glob"
        ),
    ] = None,
    after: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="AFTER",
            help="sample logs after, one argument for each model; NAME=LOGS names it; a quoted "
            "glob that matches several runs names training seeds of one model",
        ),
    ] = None,
    example: Annotated[
        bool,
        typer.Option("--example", help="compare two bundled logs; write the page to gapft-example"),
    ] = False,
    seeds: Annotated[
        bool, typer.Option("--seeds", help="all AFTERs are training seeds of one model")
    ] = False,
    metric: Annotated[
        str | None,
        typer.Option(
            "--metric",
            metavar="NAME",
            help="the metric; default: the first in the log of each task",
        ),
    ] = None,
    filter: Annotated[
        str | None,
        typer.Option(
            "--filter",
            metavar="NAME",
            help="lm_eval's filter; default: the first in the log of each task",
        ),
    ] = None,
    task: Annotated[
        list[str],
        typer.Option("--task", "--tasks", metavar="NAME", help="only this task; repeatable"),
    ] = [],
    cluster: Annotated[
        str | None,
        typer.Option(
            "--cluster", metavar="FIELD", help="documents that share this field are not independent"
        ),
    ] = None,
    by: Annotated[
        str | None,
        typer.Option(
            "--by", metavar="FIELD", help="also compare for each value of this field, e.g. subject"
        ),
    ] = None,
    on: Annotated[
        list[str],
        typer.Option(
            "--on",
            metavar="FIELD",
            help="match documents by this field (A=B: A before, B after); default: by the whole "
            "document; repeatable",
        ),
    ] = [],
    common: Annotated[
        bool, typer.Option("--common", help="leave out documents that are not scored in all logs")
    ] = False,
    source_samples: Annotated[
        list[str],
        typer.Option(
            "--source-samples",
            metavar="LOGS",
            help="logs before with several samples per document, for G, S and U; repeatable",
        ),
    ] = [],
    drop_copies: Annotated[
        bool,
        typer.Option(
            "--drop-copies",
            help="leave out a sample that equals an earlier one on every document",
        ),
    ] = False,
    verifier: Annotated[
        str | None,
        typer.Option(
            "--verifier",
            metavar="NAME[:KEY=VALUE,...]",
            help="first judge all responses by this verifier; with BEFORE alone, compare the log's "
            "own verdicts with the verifier's",
        ),
    ] = None,
    gold: Annotated[
        str | None,
        typer.Option(
            "--gold",
            metavar="FIELD",
            help="the document's field with the gold answer for --verifier; doc: the whole "
            "document; default: the first that the verifier accepts",
        ),
    ] = None,
    policy: Annotated[
        Path | None,
        typer.Option(
            "--policy",
            metavar="FILE",
            help="margins by task and metric in YAML (docs/comparing.md); exit with 1 for BLOCK, "
            "with 3 for INCONCLUSIVE",
        ),
    ] = None,
    fail_if_worse: Annotated[
        float | None,
        typer.Option(
            "--fail-if-worse",
            metavar="X",
            help="the policy with one margin for all documents, e.g. 0.01",
        ),
    ] = None,
    junit: Annotated[
        Path | None,
        typer.Option("--junit", metavar="FILE", help="write the policy's verdicts as JUnit's XML"),
    ] = None,
    higher_is_better: Annotated[
        bool | None,
        typer.Option(
            "--higher-is-better/--lower-is-better",
            help="the metric's direction, if the logs have no results file of lm_eval beside them",
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            metavar="DIR",
            help="write figures, tables and a page of all documents to DIR (docs/comparing.md)",
            parser=parse_folder,
        ),
    ] = None,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="let --out replace an earlier comparison")
    ] = False,
    latest: Annotated[
        bool,
        typer.Option("--latest", help="use the newest of several logs of one task in a folder"),
    ] = False,
    show: Annotated[
        int,
        typer.Option(
            "--show", metavar="N", min=0, help="gained and lost documents to print for each model"
        ),
    ] = 3,
    form: Format = "terminal",
    plugin: PluginFile = [],
) -> None:
    """Compare sample logs of lm_eval before and after training, document by document."""
    with _exit_2_on_errors():
        from gapft_harness.cli.display import print_page
        from gapft_harness.cli.runs import is_run
        from gapft_harness.compare.choice import CompareChoice
        from gapft_harness.compare.comparison import compare as compared
        from gapft_harness.compare.gate import (
            check_policy,
            describe_check,
            find_verdict,
            write_junit,
        )
        from gapft_harness.compare.judging import parse_rule
        from gapft_harness.compare.page import FILES, build_page, write_comparison
        from gapft_harness.compare.policy import EXIT_STATUS, build_margin_rule, read_policy
        from gapft_harness.core.files import require_absent, require_folder

        if example:
            if before is not None:
                raise UserError(
                    f"{before}: cannot be combined with --example, which has its own logs"
                )
            before, after = EXAMPLE_LOGS
            out, overwrite = out or Path("gapft-example"), overwrite or out is None
        if before is None or not (after or verifier):
            raise UserError(
                "no logs: expected BEFORE and AFTER, e.g. two folders, or --example; with "
                "--verifier, BEFORE suffices"
            )
        if verifier is not None and is_run(before):
            raise UserError(
                f"{before}: expected sample logs, found a run directory. To judge a run by a "
                "different verifier, run its recipe in a new folder beside it; the stored "
                f"responses are reused: gapft run {Path(before) / 'recipe.yaml'} "
                f"--set verifier.name={verifier.partition(':')[0]} --run-dir NEW_FOLDER"
            )
        if gold is not None and verifier is None:
            raise UserError("--gold: needs a verifier; add --verifier NAME")
        if policy is not None and fail_if_worse is not None:
            raise UserError(
                "--policy, --fail-if-worse: expected one of them; write overall: X into the policy"
            )
        rules = read_policy(policy) if policy is not None else []
        if fail_if_worse is not None:
            rules = [build_margin_rule(fail_if_worse)]
        if junit is not None and not rules:
            raise UserError("--junit: there are no verdicts; add --policy or --fail-if-worse")
        if junit is not None:
            require_folder(junit.parent, "--junit")
        if out is not None:
            require_absent(out, FILES, overwrite=overwrite)
        choice = CompareChoice(
            *(metric, filter, task, on, cluster, by, common, seeds, source_samples),
            drop_copies=drop_copies,
            higher_is_better=higher_is_better,
            latest=latest,
            shown=show,
            plugin_files=plugin,
            verifier=None if verifier is None else parse_rule(verifier),
            gold=gold,
        )
        comparison = compared(before, after or [], choice)
        if example:
            comparison = replace(comparison, before_name="the demo's model")
        checks = check_policy(comparison, rules)
        lines = []
        if out is not None:
            write_comparison(comparison, out, checks, overwrite=overwrite)
            lines.append(f"written: {out / FILES[0]}, {', '.join(FILES[1:])}, tables/, figures/")
        if junit is not None:
            write_junit(checks, comparison.unit, junit)
            lines.append(f"verdicts: {junit}")
        # a closed pipe does not change the exit status of the gate
        print_page(build_page(comparison, checks), *lines, form=form)
    if example and out is not None:
        _open_page(out / FILES[0])
    for check in checks:
        if EXIT_STATUS[check.decision.verdict] != 0:
            sentence = quote_unprintable(describe_check(check, comparison.unit))
            typer.echo(f"gapft: {sentence}", err=True)
    if (verdict := find_verdict(checks)) is not None:
        raise typer.Exit(EXIT_STATUS[verdict])


#: Logs of the demo's model and of an adapter that the demo trained, on the first 50 problems. The
#: first comparison in README reproduces them.
_LOGS = Path(__file__).parents[2] / "demo" / "logs"
EXAMPLE_LOGS = (str(_LOGS / "before"), [f"trained={_LOGS / 'after'}"])


def _open_page(page: Path) -> None:
    """Open a page in a browser if this machine has a screen and output goes to a terminal."""
    screen = sys.platform == "darwin" or os.environ.keys() & {"DISPLAY", "WAYLAND_DISPLAY"}
    if screen and sys.stdout.isatty():
        typer.launch(str(page))


@contextlib.contextmanager
def _exit_2_on_errors() -> Iterator[None]:
    """Exit with 2 on any error, because 1 is the gate's verdict BLOCK."""
    try:
        yield
    except GapftError as error:
        error.exit_status = 2
        raise
    except Exception as error:
        if isinstance(error, OSError) and error.errno == errno.ENAMETOOLONG:
            raise  # a mistake of the user, which needs no traceback
        traceback.print_exc()
        failure = GapftError(f"gapft compare failed unexpectedly: {describe_error(error)}")
        failure.exit_status = 2
        raise failure from error
