"""The few lines a run ends with: every condition beside the source."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import typer
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from gapft_harness.analysis.decomposition import STABLE_ITEMS
from gapft_harness.cli.options import Options
from gapft_harness.hooks.manager import load_plugins
from gapft_harness.report.findings.whole import DIFFERS
from gapft_harness.report.rendering.wording import UNSTABLE, k_eq, points
from gapft_harness.stages.experiment import every_experiment, parts

#: Characters of a response that the terminal shows.
_SHOWN = 160


def run_and_print(choice: Options, run_dir: str | None) -> None:
    """Runs a recipe, and prints what came of it and where the report is."""
    from gapft_harness.cli.runs import run_recipe

    page = run_recipe(choice, run_dir)
    print_summary(page.parent / "results.json", plugin_files=choice.plugin_files)
    typer.echo(f"report: {page}")


def print_summary(
    path: Path, console: Console | None = None, plugin_files: Sequence[str] = ()
) -> None:
    """Prints Pass@1 by condition, its change against the source, and K_eq, from results.json."""
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
        console.print(f"{UNSTABLE} fewer than {STABLE_ITEMS} problems: rates on them are unstable")
    for found in results.get("failures", ()):
        _print_failures(found, console)
    if not results["conditions"]:
        console.print("Search exposed no recovered failure (S) to train on; nothing was trained.")
        return
    changes = {c["a"]: c for c in results["contrasts"] if c["b"] == "source"}
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    table.add_column("condition")
    for column in ("Pass@1", "change", "95% interval", "K_eq", "slots", "steps"):
        table.add_column(column, justify="right")
    table.add_row("source, greedy", _rate(source["pass_at_1"], few), "", "", "", "", "")
    for name, condition in results["conditions"].items():
        budget = next(iter(condition["seeds"].values()))["budget"]
        change = changes[name]
        low, high = change["ci95"]
        table.add_row(
            f"{name} {DIFFERS}" if condition.get("own") else name,
            _rate(condition["pass_at_1"], few),
            points(change["delta"]),
            f"[{points(low)}, {points(high)}]",
            k_eq(0 if condition["K_eq"] == "<1" else int(condition["K_eq"]), results["k"]),
            str(budget["n"]),
            str(budget["J"]),
        )
    console.print(table)
    if any(of.get("own") for of in results["conditions"].values()):
        console.print(
            f"{DIFFERS} has settings of its own, so it is matched with none of other settings"
        )
    for name, found in results.get("audits", {}).items():
        console.print(_on_audit(name, found), markup=False)
    for said in summaries:
        console.print(f"{said.line}{_mark(said.problems)}", markup=False)


def _on_audit(name: str, audit: dict[str, Any]) -> str:
    """Pass@1 by condition on a further audit, in a line."""
    n = audit["source"]["n"]
    rated = {"source": audit["source"], **audit["conditions"]}
    rates = ", ".join(f"{of} {each['pass_at_1']:.1%}" for of, each in rated.items())
    whose = f"task {audit['task']}" if "task" in audit else f"{audit['of']}"
    return f"audit {name}, {n}{_mark(n)} problems of {whose}: {rates}"


def _mark(problems: int) -> str:
    return UNSTABLE if 0 < problems < STABLE_ITEMS else ""


def _rate(value: float, few: bool) -> str:
    return f"{value:.1%}{UNSTABLE if few else ''}"


def _print_failures(failures: dict[str, Any], console: Console) -> None:
    """Why so little passes: the commonest reasons, and a few responses, cut short."""
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
