"""The cost of each condition's gain, and after how many queries it has paid off.

One model is deployed, so a condition costs the search of the pool and the training of one seed
(the mean over seeds). Search reaches the same accuracy with K_eq samples of the source per query
and a verifier to choose among them; the trained model needs one decode per query.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import astuple, dataclass
from statistics import fmean
from typing import Any, Literal

from gapft_harness.core.records import Arm
from gapft_harness.report.findings.computation import ConditionFindings, Findings
from gapft_harness.report.frame import Column, Frame
from gapft_harness.report.reading.inputs import ReportInputs
from gapft_harness.report.rendering.blocks import Block
from gapft_harness.report.rendering.wording import (
    condition_name,
    format_count,
    format_duration,
    format_rounded,
    points,
)
from gapft_harness.run_directory import layout

Unit = Literal["tokens", "seconds"]


@dataclass(frozen=True, slots=True)
class Spending:
    """A cost in tokens, and in seconds where they are recorded; None: unknown."""

    tokens: float | None
    seconds: float | None = None

    @classmethod
    def from_rate(cls, tokens: float | None, rate: float | None) -> Spending:
        """Create a cost from tokens and a rate in tokens per second; None: unknown."""
        return cls(tokens, None if tokens is None or not rate else tokens / rate)

    def __add__(self, other: Spending) -> Spending:
        return Spending(
            _add_known(self.tokens, other.tokens), _add_known(self.seconds, other.seconds)
        )


@dataclass(frozen=True, slots=True)
class LedgerLine:
    """A condition's line of the ledger.

    Attributes:
        name: the condition.
        gain: its mean Pass@1 minus the source's, from -1 to 1.
        training: the cost of one seed, a mean: processed tokens L, or the tokens drawn by an online
            trainer; and the trainer's seconds.
        total: training and the search of the pool.
        saved: per query: K_eq samples of the source minus one decode of the trained model.
    """

    name: str
    gain: float
    training: Spending
    total: Spending
    saved: Spending

    @property
    def per_point(self) -> Spending:
        """The cost of one point (1%) of Pass@1; None without a gain."""
        points = 100 * self.gain
        if points <= 0:
            return Spending(None)
        return Spending(
            *(None if amount is None else amount / points for amount in astuple(self.total))
        )

    def compute_queries(self, unit: Unit) -> int | None:
        """Compute the queries after which the cost is paid off; None: never, or unknown.

        Without a gain it never pays off: one decode of the source is as good.
        """
        cost: float | None = getattr(self.total, unit)
        saved: float | None = getattr(self.saved, unit)
        if self.gain <= 0 or cost is None or saved is None or saved <= 0:
            return None
        return math.ceil(cost / saved)

    def format_queries(self, unit: Unit) -> str:
        """Format these queries for people; a dash where they are unknown."""
        queries = self.compute_queries(unit)
        if queries is not None:
            return format_count(queries)
        unknown = getattr(self.total, unit) is None or getattr(self.saved, unit) is None
        return "–" if self.gain > 0 and unknown else "never"


@dataclass(frozen=True, slots=True)
class Ledger:
    """The cost of the pool's search, and a line for each condition.

    Attributes:
        search: generated tokens, and wall seconds of the search times the pool's share of tokens.
        per_sample: the mean cost of a sample on the audit.
        entries: the lines, in the recipe's order.
    """

    search: Spending
    per_sample: Spending
    entries: tuple[LedgerLine, ...]


def find_search_seconds(stages: Mapping[str, float], reused: bool) -> float | None:
    """Find the wall time of a search in seconds; None where it is unknown.

    Args:
        stages: wall seconds by stage.
        reused: whether responses were generated for another run, so their time is not known.
    """
    return None if reused or "import" in stages else stages.get("search")


def compute_ledger(inputs: ReportInputs, findings: Findings) -> Ledger:
    """Compute the ledger from the recorded tokens and times; None where one is not recorded."""
    splits = {
        name: generated
        for name, generated in inputs.generated.items()
        if layout.parse_arm(name) is None
    }
    pool, audit = splits.get("pool"), splits.get("audit")
    total = sum(generated.total for generated in splits.values())
    seconds = find_search_seconds(inputs.seconds, inputs.reused)
    rate = total / seconds if seconds and pool and audit else None
    search = Spending.from_rate(pool.total if pool else None, rate)
    sample = audit.mean_sample if audit and audit.samples else None

    def build_lines() -> Iterator[LedgerLine]:
        for name, condition in findings.conditions.items():
            training = _compute_training(inputs, condition)
            decode = _compute_decode(inputs, condition)
            saved_tokens = (
                None if sample is None or decode is None else condition.k_eq * sample - decode
            )
            gain = float(condition.mean.terms.total)
            yield LedgerLine(
                name, gain, training, search + training, Spending.from_rate(saved_tokens, rate)
            )

    return Ledger(search, Spending.from_rate(sample, rate), tuple(build_lines()))


def build_content(inputs: ReportInputs, findings: Findings) -> dict[str, Any]:
    """Build the entry for results.json, which contains no times."""
    costs = compute_ledger(inputs, findings)
    return {
        "search_tokens": costs.search.tokens,
        "sample_tokens": costs.per_sample.tokens,
        "conditions": {
            entry.name: entries
            for entry, entries in zip(
                costs.entries, Frame(LINES, costs.entries).entries(), strict=True
            )
        },
    }


def _compute_training(inputs: ReportInputs, condition: ConditionFindings) -> Spending:
    seconds, tokens = [], []
    for seed, seed_findings in condition.seeds.items():
        # an arm that shares another arm's adapter has the cost of that arm
        facts = inputs.training.get(seed_findings.trained_as or Arm(condition.name, seed).name, {})
        seconds.append(facts.get("seconds"))
        tokens.append(facts.get("completion_tokens", seed_findings.budget.tokens))
    known_seconds = [value for value in seconds if value is not None]
    return Spending(
        fmean(tokens), fmean(known_seconds) if len(known_seconds) == len(seconds) else None
    )


def _compute_decode(inputs: ReportInputs, condition: ConditionFindings) -> float | None:
    """Return the mean tokens of one decode of the trained models; None: unknown."""
    arms = [inputs.generated.get(Arm(condition.name, seed).name) for seed in condition.seeds]
    means = [generated.mean_decode for generated in arms if generated is not None]
    return fmean(means) if len(means) == len(arms) else None


def _add_known(amount: float | None, other: float | None) -> float | None:
    return None if amount is None or other is None else amount + other


def build_costs(inputs: ReportInputs, findings: Findings) -> list[Block]:
    """Build the table with a line for each condition."""
    costs = compute_ledger(inputs, findings)
    return [Frame(LINES, costs.entries).table(_describe_costs(costs))]


def _describe_costs(costs: Ledger) -> str:
    tokens, time = format_rounded(costs.search.tokens), _format_time(costs.search.seconds)
    text = (
        f"The search of the pool: {tokens} generated tokens, {time} (its share of the search's "
        "wall time, by tokens). Training: mean of one seed, in processed tokens (online: drawn "
        "tokens), and the trainer's time. A point: the cost of search and training divided by the "
        "gain over the source. Paid after: the number of queries after which search, training and "
        "one decode per query cost less than K_eq samples of the source per query; never: one "
        "decode is not cheaper. Generated and processed tokens have the same weight here; the "
        "cost of the verifier is not included."
    )
    missing = []
    if costs.search.tokens is None or costs.per_sample.tokens is None:
        missing.append("tokens, because the backend gave no token ids")
    elif costs.search.seconds is None:
        missing.append("the search's time")
    if any(entry.training.seconds is None for entry in costs.entries):
        missing.append("the time of training")
    return text + (f" Not recorded: {'; '.join(missing)}." if missing else "")


def _format_time(seconds: float | None) -> str:
    """Format a duration with two digits below 10 s: a point of a small run may take less."""
    if seconds is None:
        return "–"
    return f"{seconds:.2g} s" if seconds < 10 else format_duration(seconds)


_GAIN = "Pass@1 minus the source's"
_TRAINING = "mean of one seed"
_A_POINT = "search and training divided by the gain in points"
_PAID = "queries after which training has [paid off](report.md#what-it-cost)"

LINES: tuple[Column[LedgerLine], ...] = (
    Column("", "", lambda line: condition_name(line.name), "condition"),
    Column("gain", _GAIN, lambda line: line.gain, "gain (points)", points),
    Column(
        "training_tokens",
        _TRAINING,
        lambda line: line.training.tokens,
        "training tokens",
        format_rounded,
    ),
    Column("", _TRAINING, lambda line: line.training.seconds, "time", _format_time),
    Column(
        "tokens_a_point",
        _A_POINT,
        lambda line: line.per_point.tokens,
        "tokens a point",
        format_rounded,
    ),
    Column("", _A_POINT, lambda line: line.per_point.seconds, "time a point", _format_time),
    Column("saved_a_query", "", lambda line: line.saved.tokens),
    Column("break_even_queries", "", lambda line: line.compute_queries("tokens")),
    Column("", _PAID, lambda line: line.format_queries("tokens"), "paid after queries, tokens"),
    Column("", _PAID, lambda line: line.format_queries("seconds"), "time"),
)
