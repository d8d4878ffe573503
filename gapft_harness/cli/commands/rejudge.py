"""``gapft rejudge``: judge saved responses by a different verifier or rule."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gapft_harness.cli.options import Format, PluginFile, parse_folder
from gapft_harness.core.errors import UserError

if TYPE_CHECKING:
    from gapft_harness.rejudge.choice import Rule

GROUP = "Measure and compare"
EXAMPLE = "gapft rejudge runs/before --verifier math"


def command(
    logs: Annotated[
        list[str],
        typer.Argument(
            metavar="LOGS",
            help="sample logs of lm_eval: files, folders or globs",
        ),
    ],
    verifier: Annotated[
        str,
        typer.Option(
            "--verifier", metavar="NAME", help="the verifier that judges the responses, e.g. math"
        ),
    ],
    param: Annotated[
        list[str],
        typer.Option(
            "--param",
            metavar="KEY=VALUE",
            help="a parameter of the verifier, e.g. rule=first_explicit; repeatable",
        ),
    ] = [],
    was: Annotated[
        str | None,
        typer.Option(
            "--was",
            metavar="NAME",
            help="the verifier to compare with; default: the verdicts in the log",
        ),
    ] = None,
    was_param: Annotated[
        list[str],
        typer.Option(
            "--was-param",
            metavar="KEY=VALUE",
            help="a parameter of the verifier of --was; repeatable",
        ),
    ] = [],
    gold: Annotated[
        str | None,
        typer.Option(
            "--gold",
            metavar="FIELD",
            help="the field of the document with the gold answer, or target, or doc; default: the "
            "first one that the verifier accepts",
        ),
    ] = None,
    metric: Annotated[
        str | None,
        typer.Option(
            "--metric",
            metavar="NAME",
            help="the metric to compare with; default: the log's verdicts, else its first metric",
        ),
    ] = None,
    filter: Annotated[
        str | None,
        typer.Option(
            "--filter", metavar="NAME", help="lm_eval's filter; default: the first in the log"
        ),
    ] = None,
    task: Annotated[
        list[str],
        typer.Option("--task", "--tasks", metavar="NAME", help="only this task; repeatable"),
    ] = [],
    show: Annotated[
        int, typer.Option("--show", metavar="N", min=0, help="flips of each kind to print")
    ] = 10,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            metavar="DIR",
            help="write results.json, rejudged.csv, flips.csv and the pages rejudged.md and "
            "rejudged.html to DIR",
            parser=parse_folder,
        ),
    ] = None,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="let --out replace the files of an earlier rejudge")
    ] = False,
    form: Format = "terminal",
    plugin: PluginFile = [],
    include_path: Annotated[
        Path | None,
        typer.Option(
            "--include-path",
            metavar="DIR",
            help="a folder with task YAML: the include_path of a verifier that reads a task",
        ),
    ] = None,
) -> None:
    """Judge saved responses by a different verifier, and list changed verdicts."""
    from gapft_harness.cli.display import Display, print_document
    from gapft_harness.cli.runs import is_run
    from gapft_harness.core.files import require_absent
    from gapft_harness.rejudge.choice import RejudgeChoice, Rule
    from gapft_harness.rejudge.document import FILES, build_document
    from gapft_harness.rejudge.flips import collect_flips
    from gapft_harness.rejudge.logs import judge_logs

    if run := next((place for place in logs if is_run(place)), None):
        raise UserError(
            f"{run}: expected sample logs, found a run directory. To judge a run by a different "
            "verifier, run its recipe in a new folder beside it; the stored responses are reused: "
            f"gapft run {Path(run) / 'recipe.yaml'} --set verifier.name={verifier} "
            "--run-dir NEW_FOLDER"
        )
    if was is None and was_param:
        raise UserError("--was-param: needs a verifier; add --was NAME")
    if was is not None and metric is not None:
        raise UserError(
            "--metric: cannot be combined with --was, which replaces the log's verdicts"
        )
    if out is not None:
        require_absent(out, FILES, overwrite=overwrite)
    new_rule = Rule(verifier, _parse_params(param, "--param"))
    old_rule = None if was is None else Rule(was, _parse_params(was_param, "--was-param"))
    if include_path is not None:
        new_rule, old_rule = _add_include_path(include_path, new_rule, old_rule, plugin)
    choice = RejudgeChoice(new_rule, old_rule, gold, metric, filter, task, plugin, show)
    display = Display()
    with collect_flips(choice.shown, writes_file=out is not None) as flips:
        with display:
            rejudged_logs = judge_logs(logs, choice, flips, display.report_progress)
        page = build_document(rejudged_logs)
        if out is None:
            print_document(page, form=form)
            return
        page.write(out)
        flips.write(out / FILES[-1])
        print_document(page, f"written: {out / FILES[0]}, {', '.join(FILES[1:])}", form=form)


def _add_include_path(
    folder: Path, new_rule: Rule, old_rule: Rule | None, plugin_files: Sequence[str]
) -> tuple[Rule, Rule | None]:
    """Add the folder to the parameters of rules whose verifiers have an unset include_path."""
    from gapft_harness.hooks.manager import load_plugins
    from gapft_harness.hooks.registration import find_setting_fault
    from gapft_harness.hooks.thoughts import split_think_end_token

    if not folder.is_dir():
        raise UserError(f"--include-path {folder}: expected a folder with task YAML")
    plugins, include_params = load_plugins(plugin_files), {"include_path": str(folder.resolve())}

    def takes_folder(rule: Rule) -> bool:
        factory = plugins.get("verifier", rule.name).value
        _, own_params = split_think_end_token(rule.params)
        return not find_setting_fault(factory, {**include_params, **own_params})

    rules = [new_rule] if old_rule is None else [new_rule, old_rule]
    if not any(map(takes_folder, rules)):
        names = " and ".join(repr(rule.name) for rule in rules)
        raise UserError(
            f"--include-path: verifier {names} does not read a task; leave the option out"
        )
    first, *rest = (
        replace(rule, params={**include_params, **rule.params}) if takes_folder(rule) else rule
        for rule in rules
    )
    return first, rest[0] if rest else None


def _parse_params(texts: Sequence[str], option: str) -> dict[str, Any]:
    from gapft_harness.recipe.reading import parse_value

    params: dict[str, Any] = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not equals or not key:
            raise UserError(f"{option} {text}: expected KEY=VALUE, e.g. rule=first_explicit")
        if key in params:
            raise UserError(f"{option} {text}: {key} is set twice")
        params[key] = parse_value(value, f"{option} {text}")
    return params
