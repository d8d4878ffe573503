"""Read the results that ``gapft gap`` writes."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any


def read_results(folder: Path) -> dict[str, Any]:
    """Read results.json of a measured task."""
    results: dict[str, Any] = json.loads((folder / "gap" / "results.json").read_text())
    return results


def read_rates(results: dict[str, Any]) -> dict[str, dict[str, dict[str, Any]]]:
    """Return the rows of the curve by filter and label."""
    rates: dict[str, dict[str, dict[str, Any]]] = {}
    for row in results["curve"]:
        rates.setdefault(row["view"], {})[row["label"]] = row
    return rates


def read_states(results: dict[str, Any]) -> dict[str, dict[str, int]]:
    """Return the number of problems by filter and state."""
    states: dict[str, dict[str, int]] = {}
    for row in results["states"]:
        states.setdefault(row["view"], {})[row["state"]] = row["problems"]
    return states


def read_items(folder: Path) -> dict[tuple[str, int], dict[str, str]]:
    """Read items.csv by filter and doc_id."""
    with (folder / "gap" / "tables" / "items.csv").open(newline="") as file:
        return {(row["filter"], int(row["doc_id"])): row for row in csv.DictReader(file)}
