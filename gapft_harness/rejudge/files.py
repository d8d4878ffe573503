"""What ``--out`` writes: results.json, rejudged.csv, flips.csv, rejudged.md, rejudged.html."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from gapft_harness.compare.files import paired, write_text
from gapft_harness.compare.findings import Paired
from gapft_harness.core.files import write_json
from gapft_harness.core.text import whole as whole_values
from gapft_harness.rejudge.choice import Rule
from gapft_harness.rejudge.flips import Flips
from gapft_harness.rejudge.logs import LogsJudged
from gapft_harness.rejudge.page import notes, sections
from gapft_harness.report.rendering import page
from gapft_harness.report.rendering.blocks import Section
from gapft_harness.report.rendering.markdown import render
from gapft_harness.report.tables import as_csv

#: The files, those for people first.
FILES = ("rejudged.md", "rejudged.html", "results.json", "rejudged.csv", "flips.csv")


def write(of: LogsJudged, folder: Path) -> None:
    """Writes the files; what is there of an earlier command is replaced.

    Raises:
        GapftError: the folder cannot be written, or the disk is full.
    """
    write_all(folder, results(of), _rows(of), of.flips, sections(of))


def write_all(
    folder: Path,
    results: Mapping[str, Any],
    rows: Iterator[tuple[object, ...]],
    flips: Flips,
    built: Sequence[Section],
) -> None:
    """Writes what was found, of logs or of a run."""
    folder.mkdir(parents=True, exist_ok=True)
    write_json(folder / "results.json", whole_values(results))
    write_text(folder / "rejudged.csv", as_csv(rows))
    flips.write(folder / "flips.csv")
    write_text(folder / "rejudged.md", render("Judged again", "", built))
    write_text(
        folder / "rejudged.html", page.render("Judged again", "", built, (), {}, tables=False)
    )


def rule(of: Rule | None) -> dict[str, Any] | None:
    """A rule as results.json has it."""
    return None if of is None else {"verifier": of.name, "params": dict(of.params)}


def results(of: LogsJudged) -> dict[str, Any]:
    """The content of results.json (schema 1; keys in docs/comparing.md)."""
    found, name = of.found(), str(of.choice.now)
    return {
        "schema": 1,
        "logs": [str(log.path) for log in of.logs],
        "now": rule(of.choice.now),
        "was": rule(of.choice.was),
        "gold": [reading.golds.where for reading in of.readings],
        "responses": of.responses,
        "verdicts": dict(sorted(of.reasons.statuses.items())),
        "was_verdicts": dict(sorted(of.was_reasons.statuses.items())) if of.choice.was else None,
        "right_now": of.flips.right,
        "wrong_now": of.flips.wrong,
        **_figures(found.models[name]),
        "by": {group: _figures(by[name]) for group, by in found.groups.items()},
        "notes": list(notes(of)),
    }


def _figures(one: Paired) -> dict[str, Any]:
    return {"n": one.items, "documents": one.units, **paired(one, judged=True)}


def _rows(of: LogsJudged) -> Iterator[tuple[object, ...]]:
    found, name = of.found(), str(of.choice.now)
    yield (
        "log", "documents", "before", "after", "difference", "ci95_low", "ci95_high", "test", "p",
    )  # fmt: skip
    groups = [("", found.models), *found.groups.items()]
    for group, one in [(group, by[name]) for group, by in groups]:
        ends = ("", "") if one.interval is None else (one.interval.low, one.interval.high)
        yield group, one.units, one.before, one.after, one.difference, *ends, one.test, one.p_value
