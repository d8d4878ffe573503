"""What each condition's gain cost, and after how many queries that is less than searching each.

One model is deployed, so a condition costs the search of the pool and the training of one seed
(the mean over seeds). Answering as well by search takes K_eq samples of the source a query, with a
verifier to choose among them; the trained model takes one decode.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import astuple, dataclass
from statistics import fmean
from typing import Any, Literal

from gapft_harness.core.records import Arm
from gapft_harness.report.findings.whole import ConditionFindings, Findings
from gapft_harness.report.frame import Column, Frame
from gapft_harness.report.reading.inputs import ReportInputs
from gapft_harness.report.rendering.blocks import Block
from gapft_harness.report.rendering.wording import condition_name, duration, points, rounded, whole
from gapft_harness.run_directory import layout

Unit = Literal["tokens", "seconds"]


@dataclass(frozen=True, slots=True)
class Spent:
    """What one thing costs: tokens, and seconds where they are recorded."""

    tokens: float | None
    seconds: float | None = None

    @classmethod
    def at(cls, tokens: float | None, rate: float | None) -> Spent:
        """Tokens at so many a second, where that is known."""
        return cls(tokens, None if tokens is None or not rate else tokens / rate)

    def __add__(self, other: Spent) -> Spent:
        return Spent(_both(self.tokens, other.tokens), _both(self.seconds, other.seconds))


@dataclass(frozen=True, slots=True)
class LedgerLine:
    """A condition's line of the ledger.

    Attributes:
        gain: its mean Pass@1 minus the source's.
        training: of one seed, the mean: processed tokens L, or those that an online trainer drew;
            and seconds of the trainer.
        all: with the search of the pool.
        saved: by one query: K_eq samples of the source less one decode of the trained model.
    """

    name: str
    gain: float
    training: Spent
    all: Spent
    saved: Spent

    @property
    def a_point(self) -> Spent:
        """What a point (1%) of Pass@1 cost; None where nothing was gained."""
        points = 100 * self.gain
        if points <= 0:
            return Spent(None)
        return Spent(*(None if of is None else of / points for of in astuple(self.all)))

    def queries(self, unit: Unit) -> int | None:
        """After how many queries it is paid; None: never, or unknown.

        Never, too, where nothing was gained: one decode of the source answers as well.
        """
        cost: float | None = getattr(self.all, unit)
        saved: float | None = getattr(self.saved, unit)
        if self.gain <= 0 or cost is None or saved is None or saved <= 0:
            return None
        return math.ceil(cost / saved)

    def paid_after(self, unit: Unit) -> str:
        """The same for people; a dash where it is unknown."""
        queries = self.queries(unit)
        if queries is not None:
            return whole(queries)
        unknown = getattr(self.all, unit) is None or getattr(self.saved, unit) is None
        return "–" if self.gain > 0 and unknown else "never"


@dataclass(frozen=True, slots=True)
class Ledger:
    """The search of the pool, then a line for each condition.

    Attributes:
        search: generated tokens, and the pool's share by tokens of the search's wall seconds.
        a_sample: a sample on the audit.
    """

    search: Spent
    a_sample: Spent
    entries: tuple[LedgerLine, ...]


def search_seconds(stages: Mapping[str, float], reused: bool) -> float | None:
    """Wall time of a search, of the seconds by stage; None where nobody knows it.

    Args:
        stages: wall seconds by stage.
        reused: whether responses were generated for another run, which has their time.
    """
    return None if reused or "import" in stages else stages.get("search")


def ledger(inputs: ReportInputs, findings: Findings) -> Ledger:
    """Adds up what was recorded; what was not is None."""
    splits = {name: of for name, of in inputs.generated.items() if layout.arm_of(name) is None}
    pool, audit = splits.get("pool"), splits.get("audit")
    total = sum(of.all for of in splits.values())
    seconds = search_seconds(inputs.seconds, inputs.reused)
    rate = total / seconds if seconds and pool and audit else None
    search = Spent.at(pool.all if pool else None, rate)
    sample = audit.a_sample if audit and audit.samples else None

    def entries() -> Iterator[LedgerLine]:
        for name, condition in findings.conditions.items():
            training = _training(inputs, condition)
            decode = _decode(inputs, condition)
            both = None if sample is None or decode is None else condition.k_eq * sample - decode
            gain = float(condition.mean.terms.total)
            yield LedgerLine(name, gain, training, search + training, Spent.at(both, rate))

    return Ledger(search, Spent.at(sample, rate), tuple(entries()))


def content(inputs: ReportInputs, findings: Findings) -> dict[str, Any]:
    """For results.json, which holds no times."""
    of = ledger(inputs, findings)
    return {
        "search_tokens": of.search.tokens,
        "sample_tokens": of.a_sample.tokens,
        "conditions": {
            entry.name: entries
            for entry, entries in zip(of.entries, Frame(LINES, of.entries).entries(), strict=True)
        },
    }


def _training(inputs: ReportInputs, condition: ConditionFindings) -> Spent:
    seconds, tokens = [], []
    for seed, found in condition.seeds.items():
        # an arm that took another's adapter costs what that one did
        facts = inputs.training.get(found.trained_as or Arm(condition.name, seed).name, {})
        seconds.append(facts.get("seconds"))
        tokens.append(facts.get("completion_tokens", found.budget.tokens))
    known = [each for each in seconds if each is not None]
    return Spent(fmean(tokens), fmean(known) if len(known) == len(seconds) else None)


def _decode(inputs: ReportInputs, condition: ConditionFindings) -> float | None:
    """Mean tokens of one decode of the trained models."""
    arms = [inputs.generated.get(Arm(condition.name, seed).name) for seed in condition.seeds]
    known = [of.a_decode for of in arms if of is not None]
    return fmean(known) if len(known) == len(arms) else None


def _both(one: float | None, other: float | None) -> float | None:
    return None if one is None or other is None else one + other


def costs(inputs: ReportInputs, findings: Findings) -> list[Block]:
    """A line for each condition."""
    costs = ledger(inputs, findings)
    return [Frame(LINES, costs.entries).table(_note(costs))]


def _note(costs: Ledger) -> str:
    tokens, time = rounded(costs.search.tokens), _time(costs.search.seconds)
    said = (
        f"The search of the pool: {tokens} generated tokens, {time} (its share of the search's "
        "wall time, by tokens). Training: one seed, the mean, in processed tokens (online: those "
        "drawn) and the trainer's time. A point: search and training over "
        "the gain over the source. Paid after: the queries from which search and training cost "
        "less than answering as well by K_eq samples of the source each time, instead of one "
        "decode; never: one decode is no cheaper. "
        "Generated and processed tokens count the same here, and the verifier counts nothing."
    )
    missing = []
    if costs.search.tokens is None or costs.a_sample.tokens is None:
        missing.append("tokens, as the backend gave no token ids to count")
    elif costs.search.seconds is None:
        missing.append("the search's time")
    if any(entry.training.seconds is None for entry in costs.entries):
        missing.append("the time of training")
    return said + (f" Not recorded: {'; '.join(missing)}." if missing else "")


def _time(seconds: float | None) -> str:
    """As elsewhere, but for what is short: a point of a small run may cost less than a second."""
    if seconds is None:
        return "–"
    return f"{seconds:.2g} s" if seconds < 10 else duration(seconds)


_GAIN = "Pass@1 minus the source's"
_TRAINING = "of one seed, the mean"
_A_POINT = "search and training over the gain"
_PAID = "queries after which training has [paid](report.md#what-it-cost)"

LINES: tuple[Column[LedgerLine], ...] = (
    Column("", "", lambda line: condition_name(line.name), "condition"),
    Column("gain", _GAIN, lambda line: line.gain, "gain (points)", points),
    Column(
        "training_tokens",
        _TRAINING,
        lambda line: line.training.tokens,
        "training tokens",
        rounded,
    ),
    Column("", _TRAINING, lambda line: line.training.seconds, "time", _time),
    Column("tokens_a_point", _A_POINT, lambda line: line.a_point.tokens, "tokens a point", rounded),
    Column("", _A_POINT, lambda line: line.a_point.seconds, "time a point", _time),
    Column("saved_a_query", "", lambda line: line.saved.tokens),
    Column("break_even_queries", "", lambda line: line.queries("tokens")),
    Column("", _PAID, lambda line: line.paid_after("tokens"), "paid after queries, tokens"),
    Column("", _PAID, lambda line: line.paid_after("seconds"), "time"),
)
