"""What ``--out`` writes of a run: results.json, rejudged.csv, flips.csv and the pages."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from gapft_harness.core.records import State
from gapft_harness.rejudge.files import rule, write_all
from gapft_harness.rejudge.run.conclusions import Conclusion
from gapft_harness.rejudge.run.judged import RunJudged
from gapft_harness.rejudge.run.page import sections
from gapft_harness.report.results import on_audit

_STATES: tuple[State, ...] = ("G", "S", "U")


def write(of: RunJudged, folder: Path) -> None:
    """Writes the files; what is there of an earlier command is replaced.

    Raises:
        GapftError: the folder cannot be written, or the disk is full.
    """
    write_all(folder, results(of), _rows(of), of.flips, sections(of))


def results(of: RunJudged) -> dict[str, Any]:
    """The content of results.json (schema 1; keys in docs/comparing.md)."""
    return {
        "schema": 1,
        "run": str(of.path),
        "now": rule(of.choice.now),
        "was": {**(rule(of.was) or {}), **({"imported": dict(of.taken)} if of.taken else {})},
        "responses": sum(tally.responses for tally in of.tallies.values()),
        "verdicts": dict(sorted(of.reasons.statuses.items())),
        "right_now": of.flips.right,
        "wrong_now": of.flips.wrong,
        "tables": {
            name: {
                "responses": tally.responses,
                "was_right": tally.was_right,
                "is_right": tally.is_right,
                "right_now": tally.right_now,
                "wrong_now": tally.wrong_now,
            }
            for name, tally in of.tallies.items()
        },
        "states": {
            split: {was: {now: crossed.get((was, now), 0) for now in _STATES} for was in _STATES}
            for split, crossed in of.states.items()
        },
        "stopped_early": of.stopped,
        "n": list(of.sets.n),
        "refused": of.sets.refused or None,
        "arms": {
            arm.name: {
                "n": [one.before, one.after],
                "same": one.same,
                "dropped": one.dropped,
                "new": one.new,
                "differs": one.differs,
            }
            for arm, one in of.sets.arms.items()
        },
        "before": on_audit(of.inputs[0], of.findings[0]),
        "after": on_audit(of.inputs[1], of.findings[1]),
        "conclusions": [_conclusion(one) for one in of.conclusions],
        "notes": list(of.left),
    }


def _conclusion(one: Conclusion) -> dict[str, Any]:
    return {
        "a": one.was.a,
        "b": one.was.b,
        "was": float(one.was.delta),
        "is": float(one.now.delta),
        "verdict": one.verdict,
        "other_sign": one.turned,
        "agreeing": [float(end) for end in one.agreeing],
        "retrained": one.retrained and [float(end) for end in one.retrained],
    }


def _rows(of: RunJudged) -> Iterator[tuple[object, ...]]:
    yield "responses", "all", "was_right", "is_right", "right_now", "wrong_now"
    for name, one in of.tallies.items():
        yield name, one.responses, one.was_right, one.is_right, one.right_now, one.wrong_now
