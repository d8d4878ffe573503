"""``gapft compare``: compare sample logs of lm_eval before and after training."""

from __future__ import annotations

import contextlib
import errno
import traceback
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gapft_harness.cli.options import Format, PluginFile, parse_folder
from gapft_harness.core.errors import GapftError, UserError, describe_error, quote_unprintable

if TYPE_CHECKING:
    from gapft_harness.compare.policy import GateRule

EXAMPLE = "gapft compare runs/before runs/after"
#: Logs of the demo's model and of an adapter that the demo trained, on the first 50 problems. The
#: first comparison in README reproduces them.
_LOGS = Path(__file__).parents[2] / "demo" / "logs"
EXAMPLE_LOGS = (str(_LOGS / "before"), [f"trained={_LOGS / 'after'}"])

#: Panels of the help.
_JUDGE, _GATE, _OUTPUT = "Judge again", "Gate", "Output"


def command(
    before: Annotated[
        str | None,
        typer.Argument(
            metavar="BEFORE", help="Sample logs of the model before: a file, folder or glob."
        ),
    ] = None,
    after: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="AFTER",
            help="Sample logs after, one argument for each model; NAME=LOGS names it; a quoted "
            "glob that matches several runs names training seeds of one model.",
        ),
    ] = None,
    example: Annotated[
        bool,
        typer.Option(
            "--example", help="Compare two bundled logs; write the page to gapft-example."
        ),
    ] = False,
    seeds: Annotated[
        bool, typer.Option("--seeds", help="All AFTERs are training seeds of one model.")
    ] = False,
    metric: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Default: the first in the log of each task."),
    ] = None,
    filter: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Default: the first in the log of each task."),
    ] = None,
    task: Annotated[
        list[str],
        typer.Option("--task", "--tasks", metavar="NAME", help="Only this task; repeatable."),
    ] = [],
    cluster: Annotated[
        str | None,
        typer.Option(metavar="FIELD", help="Documents that share this field are not independent."),
    ] = None,
    by: Annotated[
        str | None,
        typer.Option(
            metavar="FIELD", help="Also compare for each value of this field, e.g. subject."
        ),
    ] = None,
    on: Annotated[
        list[str],
        typer.Option(
            metavar="FIELD",
            help="Match documents by this field (A=B: A before, B after), not by the whole "
            "document; repeatable.",
        ),
    ] = [],
    common: Annotated[
        bool, typer.Option("--common", help="Leave out documents that not all logs score.")
    ] = False,
    latest: Annotated[
        bool,
        typer.Option("--latest", help="Use the newest of several logs of one task in a folder."),
    ] = False,
    source_samples: Annotated[
        list[str],
        typer.Option(
            metavar="LOGS",
            help="Logs before with several samples per document, for G, S and U; repeatable.",
        ),
    ] = [],
    drop_copies: Annotated[
        bool,
        typer.Option(
            "--drop-copies",
            help="Leave out a sample that equals an earlier one on every document.",
        ),
    ] = False,
    higher_is_better: Annotated[
        bool | None,
        typer.Option(
            "--higher-is-better/--lower-is-better",
            help="The metric's direction, if there is no results file of lm_eval beside the logs.",
        ),
    ] = None,
    verifier: Annotated[
        str | None,
        typer.Option(
            metavar="NAME[:KEY=VALUE,...]",
            help="First judge all responses by this verifier; with BEFORE alone, compare the log's "
            "own verdicts with the verifier's.",
            rich_help_panel=_JUDGE,
        ),
    ] = None,
    gold: Annotated[
        str | None,
        typer.Option(
            metavar="FIELD",
            help="The document's field with the gold answer; doc: the whole document; default: the "
            "first that the verifier accepts.",
            rich_help_panel=_JUDGE,
        ),
    ] = None,
    policy: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Margins by task and metric in YAML (docs/comparing.md); exit with 1 for BLOCK, "
            "with 3 for INCONCLUSIVE.",
            rich_help_panel=_GATE,
        ),
    ] = None,
    fail_if_worse: Annotated[
        float | None,
        typer.Option(
            metavar="X",
            help="The policy with one margin for all documents, e.g. 0.01.",
            rich_help_panel=_GATE,
        ),
    ] = None,
    junit: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Write the verdicts as JUnit's XML.", rich_help_panel=_GATE
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Write figures, tables and a page of all documents to DIR.",
            parser=parse_folder,
            rich_help_panel=_OUTPUT,
        ),
    ] = None,
    overwrite: Annotated[
        bool,
        typer.Option(
            "--overwrite",
            help="Let --out replace an earlier comparison.",
            rich_help_panel=_OUTPUT,
        ),
    ] = False,
    show: Annotated[
        int,
        typer.Option(
            metavar="N",
            min=0,
            help="Gained and lost documents to print for each model.",
            rich_help_panel=_OUTPUT,
        ),
    ] = 3,
    form: Format = "terminal",
    plugin: PluginFile = [],
) -> None:
    """Compare sample logs of lm_eval before and after training, document by document."""
    with _exit_2_on_errors():
        from gapft_harness.cli.display import print_page
        from gapft_harness.compare.comparison import compare as compared
        from gapft_harness.compare.gate import (
            check_policy,
            describe_check,
            find_verdict,
            write_junit,
        )
        from gapft_harness.compare.judging import parse_rule
        from gapft_harness.compare.options import CompareOptions
        from gapft_harness.compare.page import FILES, build_page
        from gapft_harness.compare.policy import EXIT_STATUS
        from gapft_harness.core.files import require_absent, require_folder

        if example:
            if before is not None:
                raise UserError(f"--example: has its own logs; leave {before} out")
            before, after = EXAMPLE_LOGS
            out, overwrite = out or Path("gapft-example"), overwrite or out is None
        before = _require_logs(before, after or (), verifier)
        if gold is not None and verifier is None:
            raise UserError("--gold: needs a verifier; add --verifier NAME")
        rules = _read_rules(policy, fail_if_worse)
        if junit is not None:
            if not rules:
                raise UserError("--junit: there are no verdicts; add --policy or --fail-if-worse")
            require_folder(junit.parent, "--junit")
        if out is not None:
            require_absent(out, FILES, overwrite=overwrite)
        options = CompareOptions(
            metric=metric,
            filter=filter,
            tasks=task,
            on=on,
            cluster=cluster,
            by=by,
            common=common,
            seeds=seeds,
            source_samples=source_samples,
            drop_copies=drop_copies,
            higher_is_better=higher_is_better,
            latest=latest,
            shown=show,
            plugin_files=plugin,
            verifier=None if verifier is None else parse_rule(verifier),
            gold=gold,
        )
        comparison = compared(before, after or [], options)
        if example:
            comparison = replace(comparison, before_name="the demo's model")
        checks = check_policy(comparison, rules)
        lines = []
        if out is not None:
            build_page(comparison, checks, written=True).write(out)
            lines.append(f"written: {out / FILES[0]}, {', '.join(FILES[1:])}, tables/, figures/")
        if junit is not None:
            write_junit(checks, comparison.unit, junit)
            lines.append(f"verdicts: {junit}")
        # a closed pipe does not change the exit status of the gate
        print_page(build_page(comparison, checks), *lines, form=form)
    for check in checks:
        if EXIT_STATUS[check.decision.verdict] != 0:
            sentence = quote_unprintable(describe_check(check, comparison.unit))
            typer.echo(f"gapft: {sentence}", err=True)
    if (verdict := find_verdict(checks)) is not None:
        raise typer.Exit(EXIT_STATUS[verdict])


def _require_logs(before: str | None, after: Sequence[str], verifier: str | None) -> str:
    """Return BEFORE after checking that there is something to compare."""
    from gapft_harness.cli.runs import is_run

    if before is None or not (after or verifier):
        raise UserError(
            "no logs: expected BEFORE and AFTER, e.g. two folders, or --example; with --verifier, "
            "BEFORE suffices"
        )
    if verifier is not None and is_run(before):
        raise UserError(
            f"{before}: expected sample logs, found a run directory. To judge a run by a different "
            "verifier, run its recipe in a new folder beside it, where the stored responses are "
            f"reused: gapft run {Path(before) / 'recipe.yaml'} "
            f"--set verifier.name={verifier.partition(':')[0]} --run-dir NEW_FOLDER"
        )
    return before


def _read_rules(policy: Path | None, fail_if_worse: float | None) -> list[GateRule]:
    from gapft_harness.compare.policy import build_margin_rule, read_policy

    if policy is not None and fail_if_worse is not None:
        raise UserError(
            "--policy, --fail-if-worse: expected one of them; write overall: X into the policy"
        )
    if fail_if_worse is not None:
        return [build_margin_rule(fail_if_worse)]
    return read_policy(policy) if policy is not None else []


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
