"""The summary on the terminal: every condition of a finished run, compared with the source."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.padding import Padding
from rich.text import Text

from gapft_harness.analysis.decomposition import STABLE_ITEMS
from gapft_harness.hooks.manager import load_plugins
from gapft_harness.report.findings.computation import UNMATCHED_MARK
from gapft_harness.report.frame import Column, Frame
from gapft_harness.report.rendering.blocks import Section
from gapft_harness.report.rendering.terminal import print_sections
from gapft_harness.report.rendering.wording import UNSTABLE, format_k_eq, percent, points
from gapft_harness.stages.experiment import list_report_parts, load_all_experiments

#: The most characters of a response that are printed.
_MAX_RESPONSE_CHARACTERS = 160


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
    is_small = source["n"] < STABLE_ITEMS
    states = {name: f"{count:,}{_mark_unstable(count)}" for name, count in source["states"].items()}
    console.print(
        f"{results['task']}: {source['n']:,}{_mark_unstable(source['n'])} audit problems, "
        f"K = {results['k']}; solved in one decode (G) {states['G']}, recovered by search (S) "
        f"{states['S']}, missed (U) {states['U']}"
    )
    if judge := results.get("judged_by", {}).get("audit", {}).get("judge"):
        console.print(judge, markup=False)
    summaries = [
        summary
        for part in list_report_parts(load_all_experiments(load_plugins(plugin_files)))
        if part.name in results and (summary := part.summary(results[part.name]))
    ]
    counts = [
        source["n"],
        *source["states"].values(),
        *(summary.problems for summary in summaries),
    ]
    if any(map(_mark_unstable, counts)):
        console.print(f"{UNSTABLE} fewer than {STABLE_ITEMS} problems: such rates are unstable")
    for entry in results.get("failures", ()):
        _print_failures(entry, console)
    if not results["conditions"]:
        console.print(
            "The search found no recovered failure (S) to train on, so nothing was trained."
        )
        return
    changes = {c["a"]: c for c in results["contrasts"] if c["b"] == "source"}
    source_name = "source" if results.get("deployment") else "source, greedy"
    rows = [SummaryRow(source_name, source, is_small)]
    for name, condition in results["conditions"].items():
        label = f"{name} {UNMATCHED_MARK}" if condition.get("own") else name
        rows.append(SummaryRow(label, condition, is_small, changes[name], results["k"]))
    print_sections([Section("", [Frame(SUMMARY_COLUMNS, rows).table()])], console)
    if any(figures.get("own") for figures in results["conditions"].values()):
        console.print(
            f"{UNMATCHED_MARK} different settings: not comparable with conditions that have other "
            "settings"
        )
    for summary in summaries:
        console.print(f"{summary.line}{_mark_unstable(summary.problems)}", markup=False)


@dataclass(frozen=True, slots=True)
class SummaryRow:
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
    is_small: bool
    change: Mapping[str, Any] = field(default_factory=dict)
    k: int = 0

    @property
    def budget(self) -> Mapping[str, int]:
        """The budget of its first seed; n and J are equal for all seeds."""
        seed: Mapping[str, Any] = next(iter(self.figures["seeds"].values()))
        budget: Mapping[str, int] = seed["budget"]
        return budget


def _build_change_column(
    title: str, format_value: Callable[[SummaryRow], str], meaning: str = ""
) -> Column[SummaryRow]:
    """Build a column whose cell is empty for the source."""
    return Column("", meaning, lambda line: format_value(line) if line.change else "", title)


def _format_interval(line: SummaryRow) -> str:
    low, high = line.change["ci95"]
    return f"[{points(low)}, {points(high)}]"


def _format_k_eq(line: SummaryRow) -> str:
    label = line.figures["K_eq"]
    return format_k_eq(0 if label == "<1" else int(label), line.k)


SUMMARY_COLUMNS: tuple[Column[SummaryRow], ...] = (
    Column("", "", lambda line: line.label, "condition"),
    Column(
        "",
        "",
        lambda line: line.figures["pass_at_1"],
        "Pass@1",
        percent,
        lambda line: line.is_small,
    ),
    _build_change_column(
        "change", lambda line: points(line.change["delta"]), "Pass@1 minus the source's"
    ),
    _build_change_column("95% interval", _format_interval, "of the change"),
    _build_change_column("K_eq", _format_k_eq),
    _build_change_column(
        "slots", lambda line: str(line.budget["n"]), "examples in the training set"
    ),
    _build_change_column("steps", lambda line: str(line.budget["J"]), "optimizer steps"),
)


def _mark_unstable(problems: int) -> str:
    return UNSTABLE if 0 < problems < STABLE_ITEMS else ""


def _print_failures(failures: dict[str, Any], console: Console) -> None:
    """Print the most frequent reasons for failures, and a few shortened responses."""
    console.print(failures["summary"], style="yellow", markup=False)
    for reason in failures["reasons"]:
        line = f"  {reason['responses']:>7,}  {reason['status']}: {reason['reason']}"
        console.print(line, markup=False)
    for example in failures["examples"]:
        console.print(f"  {example['heading']}", style="dim", markup=False)
        console.print(Padding(Text(_shorten_response(example["text"])), (0, 0, 0, 4)))


def _shorten_response(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _MAX_RESPONSE_CHARACTERS else f"{line[:_MAX_RESPONSE_CHARACTERS]}…"
