"""The few lines a run ends with: every condition beside the source."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from gapft_harness.report.wording import k_eq


def print_summary(path: Path, console: Console | None = None) -> None:
    """Prints Pass@1 by condition, its change against the source, and K_eq, from results.json."""
    results: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    console = console or Console(highlight=False)
    source = results["source"]
    states = source["states"]
    console.print(
        f"{results['task']}: {source['n']} audit problems, K = {results['k']}; "
        f"solved in one decode (G) {states['G']}, recovered by search (S) {states['S']}, "
        f"missed (U) {states['U']}"
    )
    if not results["conditions"]:
        console.print("Search exposed no recovered failure (S) to train on; nothing was trained.")
        return
    changes = {c["a"]: c for c in results["contrasts"] if c["b"] == "source"}
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    table.add_column("condition")
    for column in ("Pass@1", "change", "95% interval", "K_eq", "examples", "steps"):
        table.add_column(column, justify="right")
    table.add_row("source, greedy", f"{source['pass_at_1']:.1%}", "", "", "", "", "")
    for name, condition in results["conditions"].items():
        budget = next(iter(condition["seeds"].values()))["budget"]
        change = changes[name]
        low, high = change["ci95"]
        table.add_row(
            name,
            f"{condition['pass_at_1']:.1%}",
            f"{100 * change['delta']:+.1f}",
            f"[{100 * low:+.1f}, {100 * high:+.1f}]",
            k_eq(0 if condition["K_eq"] == "<1" else int(condition["K_eq"]), results["k"]),
            str(budget["n"]),
            str(budget["J"]),
        )
    console.print(table)
    if compared := results.get("allocation"):
        contrast = compared["contrast"]
        low, high = contrast["ci95"]
        console.print(
            f"{compared['diffuse']} minus {compared['concentrated']} on the problems trained on: "
            f"{100 * contrast['mean']:+.1f} points [{100 * low:+.1f}, {100 * high:+.1f}]",
            markup=False,
        )
