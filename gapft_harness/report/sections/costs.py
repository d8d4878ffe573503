"""Section "What it cost": the ledger of search and training, and when it is paid."""

from __future__ import annotations

from gapft_harness.report.findings.ledger import Ledger, Spent, ledger
from gapft_harness.report.findings.whole import Findings
from gapft_harness.report.reading.inputs import ReportInputs
from gapft_harness.report.rendering.blocks import Block, Table
from gapft_harness.report.rendering.durations import duration
from gapft_harness.report.rendering.wording import condition_name, points, whole


def blocks(inputs: ReportInputs, findings: Findings) -> list[Block]:
    """A line for each condition."""
    of = ledger(inputs, findings)
    rows = []
    for entry in of.entries:
        by_tokens, by_seconds = entry.queries
        rows.append(
            [
                condition_name(entry.name),
                points(entry.gain),
                *_spent(entry.training),
                *_spent(entry.a_point),
                _queries(by_tokens, entry.saved.tokens),
                _queries(by_seconds, entry.saved.seconds),
            ]
        )
    columns = [
        "condition", "gain (points)", "training tokens", "time", "tokens a point", "time a point",
        "paid after queries, tokens", "time",
    ]  # fmt: skip
    return [Table(columns, rows, note=_note(of))]


def _note(of: Ledger) -> str:
    tokens, time = _spent(of.search)
    said = (
        f"The search of the pool: {tokens} generated tokens, {time} (its share of the search's "
        "wall time, by tokens). Training: one seed, the mean, in processed tokens and the "
        "trainer's time. A point: search and training over the gain over the source. Paid after: "
        "the queries from which search and training cost less than answering as well by K_eq "
        "samples of the source each time, instead of one decode; never: one decode is no cheaper. "
        "Generated and processed tokens count the same here, and the verifier counts nothing."
    )
    missing = []
    if of.search.tokens is None or of.a_sample.tokens is None:
        missing.append("tokens, as the backend gave no token ids to count")
    elif of.search.seconds is None:
        missing.append("the search's time")
    if any(entry.training.seconds is None for entry in of.entries):
        missing.append("the time of training")
    return said + (f" Not recorded: {'; '.join(missing)}." if missing else "")


def _spent(of: Spent) -> tuple[str, str]:
    return (
        "–" if of.tokens is None else whole(round(of.tokens)),
        "–" if of.seconds is None else _time(of.seconds),
    )


def _time(seconds: float) -> str:
    """As elsewhere, but for what is short: a point of a small run may cost less than a second."""
    return f"{seconds:.2g} s" if seconds < 10 else duration(seconds)


def _queries(found: int | None, saved: float | None) -> str:
    if saved is None:
        return "–"
    return "never" if found is None else whole(found)
