"""The summary on the terminal: every condition of a finished run, compared with the source."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import typer
from rich.console import Console
from rich.padding import Padding
from rich.text import Text

from gapft_harness.analysis.decomposition import STABLE_ITEMS
from gapft_harness.cli.options import Options
from gapft_harness.cli.outcome import Outcome, Scope, inputs_of_run
from gapft_harness.cli.unchanged import Asked, copied_output
from gapft_harness.hooks.manager import load_plugins
from gapft_harness.report.findings.whole import DIFFERS
from gapft_harness.report.frame import Column, Frame
from gapft_harness.report.rendering.blocks import Section
from gapft_harness.report.rendering.terminal import show
from gapft_harness.report.rendering.wording import UNSTABLE, k_eq, percent, points
from gapft_harness.stages.experiment import every_experiment, parts

#: The most characters of a response that are printed.
_SHOWN = 160


def run_and_print(choice: Options, run_dir: Path | None, asked: Asked) -> None:
    """Run a recipe, print the summary and the path of the report, and record the outcome.

    Args:
        choice: the command's options.
        run_dir: the run directory; None is ``runs/NAME``.
        command: the command that is recorded.
    """
    from gapft_harness.cli.runs import resolve_recipe, resolve_run, run_recipe

    def find_scope() -> Scope:
        place, resolved = resolve_run(choice, run_dir)
        inputs = inputs_of_run(resolved, resolve_recipe(resolved), place)
        return Scope(inputs, {place: choice}, place)

    outcome = Outcome(asked, find_scope)
    page = run_recipe(choice, run_dir)
    with copied_output() as pieces:
        print_summary(page.parent / "results.json", plugin_files=choice.plugin_files)
        typer.echo(f"report: {page}")
    outcome.keep("".join(pieces))


def print_summary(
    path: Path, console: Console | None = None, plugin_files: Sequence[str] = ()
) -> None:
    """Print Pass@1 by condition, its change against the source, and K_eq, from results.json.

    Args:
        path: the file results.json.
        console: prints; None: a new console on standard output.
        plugin_files: plugin files, whose experiments may add lines.
    """
    results: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    console = console or Console(highlight=False)
    source = results["source"]
    few = source["n"] < STABLE_ITEMS
    states = {name: f"{count:,}{_mark(count)}" for name, count in source["states"].items()}
    console.print(
        f"{results['task']}: {source['n']:,}{_mark(source['n'])} audit problems, "
        f"K = {results['k']}; solved in one decode (G) {states['G']}, recovered by search (S) "
        f"{states['S']}, missed (U) {states['U']}"
    )
    if judge := results.get("judged_by", {}).get("audit", {}).get("judge"):
        console.print(judge, markup=False)
    summaries = [
        said
        for part in parts(every_experiment(load_plugins(plugin_files)))
        if part.name in results and (said := part.summary(results[part.name]))
    ]
    audits = [found["source"]["n"] for found in results.get("audits", {}).values()]
    rests = [
        source["n"],
        *source["states"].values(),
        *audits,
        *(said.problems for said in summaries),
    ]
    if any(map(_mark, rests)):
        console.print(f"{UNSTABLE} fewer than {STABLE_ITEMS} problems: such rates are unstable")
    for found in results.get("failures", ()):
        _print_failures(found, console)
    if not results["conditions"]:
        console.print(
            "The search found no recovered failure (S) to train on, so nothing was trained."
        )
        return
    changes = {c["a"]: c for c in results["contrasts"] if c["b"] == "source"}
    rows = [Line("source, greedy", source, few)]
    for name, condition in results["conditions"].items():
        label = f"{name} {DIFFERS}" if condition.get("own") else name
        rows.append(Line(label, condition, few, changes[name], results["k"]))
    show([Section("", [Frame(LINES, rows).table()])], console)
    if any(of.get("own") for of in results["conditions"].values()):
        console.print(
            f"{DIFFERS} different settings: not comparable with conditions that have other settings"
        )
    for name, found in results.get("audits", {}).items():
        console.print(_on_audit(name, found), markup=False)
    for said in summaries:
        console.print(f"{said.line}{_mark(said.problems)}", markup=False)


@dataclass(frozen=True, slots=True)
class Line:
    """A line of the summary, with entries of results.json.

    Attributes:
        label: the name of the model.
        figures: its figures.
        is_small: whether the audit has too few problems for stable rates.
        change: its contrast with the source; empty: the line is the source's.
        k: how many samples the source drew per problem.
    """

    label: str
    figures: Mapping[str, Any]
    few: bool
    change: Mapping[str, Any] = field(default_factory=dict)
    k: int = 0

    @property
    def budget(self) -> Mapping[str, int]:
        """The budget of its first seed; n and J are equal for all seeds."""
        seed: Mapping[str, Any] = next(iter(self.figures["seeds"].values()))
        budget: Mapping[str, int] = seed["budget"]
        return budget


def _trained(title: str, said: Callable[[Line], str], meaning: str = "") -> Column[Line]:
    """Build a column whose cell is empty for the source."""
    return Column("", meaning, lambda line: said(line) if line.change else "", title)


def _interval(line: Line) -> str:
    low, high = line.change["ci95"]
    return f"[{points(low)}, {points(high)}]"


def _k_eq(line: Line) -> str:
    label = line.figures["K_eq"]
    return k_eq(0 if label == "<1" else int(label), line.k)


LINES: tuple[Column[Line], ...] = (
    Column("", "", lambda line: line.label, "condition"),
    Column(
        "", "", lambda line: line.figures["pass_at_1"], "Pass@1", percent, lambda line: line.few
    ),
    _trained("change", lambda line: points(line.change["delta"]), "Pass@1 minus the source's"),
    _trained("95% interval", _interval, "of the change"),
    _trained("K_eq", _k_eq),
    _trained("slots", lambda line: str(line.budget["n"]), "examples in the training set"),
    _trained("steps", lambda line: str(line.budget["J"]), "optimizer steps"),
)


def _on_audit(name: str, audit: dict[str, Any]) -> str:
    """Format Pass@1 by condition on a further audit in one line."""
    n = audit["source"]["n"]
    rated = {"source": audit["source"], **audit["conditions"]}
    rates = ", ".join(f"{of} {each['pass_at_1']:.1%}" for of, each in rated.items())
    whose = f"task {audit['task']}" if "task" in audit else f"{audit['of']}"
    return f"audit {name}, {n}{_mark(n)} problems of {whose}: {rates}"


def _mark(problems: int) -> str:
    return UNSTABLE if 0 < problems < STABLE_ITEMS else ""


def _print_failures(failures: dict[str, Any], console: Console) -> None:
    """Print the most frequent reasons for failures, and a few shortened responses."""
    console.print(failures["summary"], style="yellow", markup=False)
    for reason in failures["reasons"]:
        line = f"  {reason['responses']:>7,}  {reason['status']}: {reason['reason']}"
        console.print(line, markup=False)
    for example in failures["examples"]:
        console.print(f"  {example['heading']}", style="dim", markup=False)
        console.print(Padding(Text(_on_one_line(example["text"])), (0, 0, 0, 4)))


def _on_one_line(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _SHOWN else f"{line[:_SHOWN]}…"
