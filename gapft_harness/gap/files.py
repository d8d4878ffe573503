"""What ``gapft gap`` writes beside the logs: figures, tables, the page, and explorer.html."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from gapft_harness.core.files import replace_file, write_json
from gapft_harness.core.text import whole_text
from gapft_harness.gap.explored import explored
from gapft_harness.gap.findings import GapFindings, Share
from gapft_harness.gap.measuring import Measured
from gapft_harness.gap.page import notes, sections
from gapft_harness.report.explorer import packing as explorer
from gapft_harness.report.rendering import page
from gapft_harness.report.rendering.markdown import render
from gapft_harness.report.tables import as_csv


def write(of: Measured, found: Mapping[str, GapFindings], folder: Path) -> None:
    """Writes the files; what is there of an earlier command is replaced.

    Raises:
        GapftError: the folder cannot be written, or the disk is full.
    """
    write_json(folder / "results.json", results(of, found))
    title, built = f"The gap of {of.task}", sections(of, found)
    texts = {
        "gap.csv": as_csv(_rates(found)),
        "items.csv": as_csv(_items(of, found)),
        "gap.md": render(title, "", built),
        "gap.html": page.render(title, "", built, (), {"": "explorer.html"}, tables=False),
        "explorer.html": explorer.render(explored(of, found)),
    }
    for name, text in texts.items():
        _write_text(folder / name, text)


def results(of: Measured, found: Mapping[str, GapFindings]) -> dict[str, Any]:
    """The content of results.json (schema 1; keys in docs/gap.md)."""
    return {
        "schema": 1,
        "task": of.task,
        "version": of.facts["version"],
        "split": of.split,
        "n": len(of.ids),
        "k": of.k,
        "metric": of.metric,
        "judge": of.judge,
        "filter": next(iter(found)),
        "filters": {name: _filter(one) for name, one in found.items()},
        "search": of.facts["config"]["search"],
        "source": of.facts["source"],
        "notes": notes(of, found),
    }


def _filter(one: GapFindings) -> dict[str, Any]:
    return {
        "greedy": _share(one.greedy),
        "pass_at_k": {str(k): _share(share) for k, share in enumerate(one.pass_at, 1)},
        "gap": _share(one.gains[-1]),
        "states": {state: int((one.states == state).sum()) for state in "GSU"},
        "p_S": _share(one.shares["S"]),
        "errors": one.errors,
    }


def _share(share: Share) -> dict[str, Any]:
    interval = share.interval
    ci95 = None if interval is None else [interval.low, interval.high]
    return {"value": float(share.value), "ci95": ci95}


def _rates(found: Mapping[str, GapFindings]) -> Iterator[tuple[object, ...]]:
    """A row for each filter and k, and for the greedy decode."""
    yield "filter", "k", "rate", "ci95_low", "ci95_high", "gain", "gain_low", "gain_high"
    for name, one in found.items():
        yield name, "greedy", *_cells(one.greedy), "", "", ""
        for k, (share, gain) in enumerate(zip(one.pass_at, one.gains, strict=True), 1):
            yield name, k, *_cells(share), *_cells(gain)


def _cells(share: Share) -> tuple[object, ...]:
    interval = share.interval
    return float(share.value), *(("", "") if interval is None else (interval.low, interval.high))


def _items(of: Measured, found: Mapping[str, GapFindings]) -> Iterator[tuple[object, ...]]:
    """A row for each filter and problem."""
    yield "filter", "problem_id", "doc_id", "state", "greedy", "passing", "samples"
    for name, one in found.items():
        verdicts = of.verdicts[name]
        columns = one.states.tolist(), verdicts.greedy.tolist(), verdicts.passing.tolist()
        for (problem, row), state, greedy, passing in zip(of.ids.items(), *columns, strict=True):
            yield name, problem, row, state, int(greedy), passing, of.k


def _write_text(path: Path, text: str) -> None:
    replace_file(path, lambda beside: beside.write_text(whole_text(text), encoding="utf-8"))
