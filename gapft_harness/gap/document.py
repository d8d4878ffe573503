"""Format the findings of ``gapft gap`` for the terminal and for its files."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from fractions import Fraction
from typing import Any

from gapft_harness.analysis.bootstrap import Interval
from gapft_harness.analysis.decomposition import STABLE_ITEMS
from gapft_harness.analysis.pass_at_k import reported_k
from gapft_harness.core.records import State
from gapft_harness.gap.costs import Costs
from gapft_harness.gap.findings import REPLICATES, GapFindings, Share
from gapft_harness.gap.logs import GREEDY_LOG, SAMPLES_LOG
from gapft_harness.gap.measuring import Measured
from gapft_harness.gap.prospects import Prospects
from gapft_harness.gap.searched import SearchedRun
from gapft_harness.report.explorer import packing as explorer
from gapft_harness.report.explorer.explored import Entry, Explored, word
from gapft_harness.report.findings.ledger import Spent
from gapft_harness.report.frame import CI95, Column, Frame
from gapft_harness.report.rendering.blocks import Block, Section, Table, Text, remarks
from gapft_harness.report.rendering.document import Document
from gapft_harness.report.rendering.wording import (
    STATE_NAMES,
    duration,
    listed,
    percent,
    percent_interval,
    points,
    points_interval,
    rounded,
    whole,
)
from gapft_harness.verdicts.places import log_at
from gapft_harness.verdicts.sample_logs import LogRow, SampleLog

#: Two rows of the same document and filter: greedy log, samples log.
_Pair = tuple[LogRow, LogRow]


#: The pages and the results.
NAMES = ("gap.html", "gap.md", "results.json")


def document(
    of: Measured, found: Mapping[str, GapFindings], prospects: Prospects | None
) -> Document:
    """Build the document for a searched task, with a page of every problem.

    Args:
        search: the judged search.
        findings: by filter, the chosen one first.
        prospects: prospects of training; None if unknown.
    """
    lead = _lead(of.task, of.split, len(of.ids), of.k, of.judge)
    sections = [_gap(lead, notes(of, found), of.k, next(iter(found.values())))]
    if len(found) > 1:
        sections.append(Section("By filter", [_by(FILTERS, of.k, found, f"{_CHOSEN} {_GAP}")]))
    return Document(
        title=f"The gap of {of.task}",
        sections=[*sections, _pay(prospects)],
        names=NAMES,
        results={**results(of, found), **_prospects(prospects)},
        tables={"gap.csv": Frame(CURVE, rates(found)).csv(), "items.csv": _items(of, found)},
        explorers={"": explorer.render(explored(of, found))},
    )


def run_document(
    run: SearchedRun,
    found: Mapping[str, GapFindings],
    prospects: Prospects | None,
    costs: Costs,
) -> Document:
    """Build the document for a run's search, with the costs of the next steps.

    Args:
        run: the run.
        findings: by split.
        prospects: prospects of training; None if unknown.
        costs: costs of the search and of the next steps.
    """
    split = "audit" if "audit" in found else "pool"
    judge, count = f"verifier {run.verifier}", len(found[split].verdicts.greedy)
    lead = _lead(run.task, split, count, run.k, judge)
    sections = [_gap(lead, run_notes(run, found), run.k, found[split])]
    if len(found) > 1:
        sections.append(Section("By split", [_by(SPLITS, run.k, found, _GAP)]))
    return Document(
        title=f"The gap of {run.task}",
        sections=[*sections, _pay(prospects), Section("Costs", [_costs(costs)])],
        names=NAMES,
        results={
            "schema": 1,
            "task": run.task,
            "k": run.k,
            "judge": judge,
            "splits": {name: _filter(one) for name, one in found.items()},
            **_prospects(prospects),
            "costs": asdict(costs),
            "notes": [note.line for note in run_notes(run, found)],
        },
    )


def run_notes(run: SearchedRun, found: Mapping[str, GapFindings]) -> Iterator[Text]:
    """Yield notes about a run's figures."""
    for warning in run.told:
        yield Text(warning, "warning")
    for split, one in found.items():
        count = len(one.verdicts.greedy)
        if count < STABLE_ITEMS:
            few = f"{split}: {count} problems, fewer than {STABLE_ITEMS}"
            yield Text(f"{few}: their shares are unstable", "warning")
        if not one.pass_at:
            early = f"{split}: its search stopped early (search.stop)"
            yield Text(f"{early}, so Pass@k is unknown")


def notes(of: Measured, found: Mapping[str, GapFindings]) -> Iterator[Text]:
    """Yield notes about the figures."""
    if (repeats := of.facts["repeats"]) > 1:
        drawn = f"{of.k} samples were drawn (--k)"
        yield Text(f"the task's own repeats ({repeats}) are not used: {drawn}")
    if of.voting:
        which = f"cannot judge a single one, and are left out: {listed(list(of.voting))}"
        yield Text(f"filters that need several responses {which}")
    for name, one in found.items():
        if one.errors:
            yield Text(
                f"filter {name}: {whole(one.errors)} of {whole(len(of.ids) * (of.k + 1))} "
                "responses could not be judged and count as not passed; see the logs for reasons"
            )
    if of.changed:
        yield Text(
            f"filter {next(iter(found))}: {whole(of.changed)} verdicts differed when judged "
            "again; the figures use those of the search",
            "warning",
        )


def _lead(task: str, split: str, problems: int, k: int, judge: str) -> str:
    return (
        f"{task}, {split}: {whole(problems)} problems, one greedy decode and {k} samples of each; "
        f"{judge}."
    )


def _gap(lead: str, notes: Iterable[Text], k: int, found: GapFindings) -> Section:
    bound = (
        f"On {_percent(found.shares['S'])} of all problems the greedy decode fails and one of {k} "
        "samples passes. This is p_S, the largest gain in greedy accuracy from correcting "
        "recovered problems."
    )
    if found.gains:
        bound += f" Pass@{k} − Pass@1 is {_points(found.gains[-1])} points."
    if found.beyond:
        ends = [f"in {percent_interval(of.p_s)} with {n}" for n, of in found.beyond.items()]
        bound += f" p_S would be {listed(ends)} samples."
    blocks: list[Block] = [_curve(k, found), _states(found), Text(bound)]
    return Section("The gap", [Text(lead, "lead"), *remarks(notes), *blocks])


def _pay(prospects: Prospects | None) -> Section:
    if prospects is None:
        text = "No audit was searched; set the number of audit items: --items M."
        return Section(_PAY, [Text(text)])
    answer, why = prospects.verdict.answer, prospects.verdict.why
    return Section(_PAY, [Text(f"{answer.capitalize()}. {why}"), Text(prospects.power)])


_PAY = "Will it pay to train?"
_CHOSEN = "The first filter is the chosen one."
_GAP = "Gap: Pass@K − Pass@1."


def _curve(k: int, found: GapFindings) -> Table:
    shown = (0, *reported_k(k), *found.beyond)  # gap.csv has every k
    rows = [rate for rate in rates({"": found}) if rate.k in shown]
    note = f"Unbiased, over problems; intervals from {whole(REPLICATES)} bootstrap replicates."
    if found.beyond:
        note += f" Beyond {k} samples: bounds for any distribution of pass rates over problems."
    return Frame(CURVE, rows).table(note)


@dataclass(frozen=True, slots=True)
class Rate:
    """A point of Pass@k; k = 0 is the greedy decode; above K there are only bounds."""

    filter: str
    k: int
    value: Fraction | None
    interval: Interval | None
    gain: Share | None = None


def rates(found: Mapping[str, GapFindings]) -> list[Rate]:
    """List the greedy decode and every k for each filter."""
    rows = []
    for name, one in found.items():
        rows.append(Rate(name, 0, one.greedy.value, one.greedy.interval))
        shares = enumerate(zip(one.pass_at, one.gains, strict=True), 1)
        rows += [Rate(name, k, of.value, of.interval, gain) for k, (of, gain) in shares]
        rows += [Rate(name, k, None, of.pass_at_k) for k, of in one.beyond.items()]
    return rows


def _interval(interval: Interval | None) -> str:
    return "" if interval is None else percent_interval(interval)


def _change(interval: Interval | None) -> str:
    return "" if interval is None else points_interval(interval)


def _gain(shown: Callable[[Share], str]) -> Callable[[Rate], str]:
    """Return a function that formats a gain; empty for k up to 1."""
    return lambda rate: "" if rate.gain is None or rate.k == 1 else shown(rate.gain)


_PASSES = "of `greedy` and `Pass@k` (Equation 1)"
_GAIN = "Pass@k minus Pass@1, both of samples"
CURVE: tuple[Column[Rate], ...] = (
    Column("filter", "", lambda rate: rate.filter),
    Column("k", "", lambda rate: rate.k or "greedy"),
    Column("", "", lambda rate: f"Pass@{rate.k}" if rate.k else "greedy", ""),
    Column("rate", _PASSES, lambda rate: rate.value, "passes", percent),
    Column(
        "ci95", _PASSES, lambda rate: rate.interval, "95% interval", percent_interval,
        names=CI95, missing="",
    ),
    Column("gain", "", lambda rate: rate.gain and rate.gain.value),
    Column(
        "gain_ci95", "", lambda rate: rate.gain and rate.gain.interval,
        names=("gain_low", "gain_high"),
    ),
    Column("", _GAIN, _gain(lambda share: points(share.value)), "− Pass@1 (points)"),
    Column("", _GAIN, _gain(lambda share: _change(share.interval)), "95% interval"),
)  # fmt: skip


def _states(found: GapFindings) -> Table:
    rows = [(state, found.verdicts.sizes[state], share) for state, share in found.shares.items()]
    return Frame(STATES, rows).table()


_STATE = "G, S and U; the share of S is p_S"
STATES: tuple[Column[tuple[State, int, Share]], ...] = (
    Column("", _STATE, lambda row: f"{row[0]}: {STATE_NAMES[row[0]]}", "state"),
    Column("", _STATE, lambda row: row[1], "problems", whole),
    Column("", _STATE, lambda row: row[2].value, "share", percent),
    Column("", _STATE, lambda row: row[2].interval, "95% interval", percent_interval, missing=""),
)


FilterRow = tuple[str, GapFindings]
_BY = "by this filter or of this split"


def _by(
    columns: Sequence[Column[FilterRow]], k: int, found: Mapping[str, GapFindings], note: str
) -> Table:
    return Frame(columns, [*found.items()]).table(note, fill={"Pass@K": f"Pass@{k}"})


def _at(value: Callable[[GapFindings], Any]) -> Callable[[FilterRow], Any]:
    """Return a function that reads a value; None if samples were left out."""
    return lambda row: value(row[1]) if row[1].pass_at else None


_FOUND: tuple[Column[FilterRow], ...] = (
    Column("", _BY, lambda row: row[1].greedy.value, "greedy", percent),
    Column("", _BY, _at(lambda one: one.pass_at[0].value), "Pass@1", percent),
    Column("", _BY, _at(lambda one: one.pass_at[-1].value), "Pass@K", percent),
    Column("", _BY, _at(lambda one: one.gains[-1].value), "gap (points)", points),
    Column(
        "", _BY, _at(lambda one: one.gains[-1].interval), "95% interval", points_interval,
        missing="",
    ),
    Column("", _BY, lambda row: row[1].verdicts.sizes["G"], "G", whole),
    Column("", _BY, lambda row: row[1].verdicts.sizes["S"], "S", whole),
    Column("", _BY, lambda row: row[1].verdicts.sizes["U"], "U", whole),
)  # fmt: skip
FILTERS: tuple[Column[FilterRow], ...] = (
    Column("", "the task's filter that reads the answer", lambda row: row[0], "filter"),
    *_FOUND,
)
SPLITS: tuple[Column[FilterRow], ...] = (
    Column("", "of the run", lambda row: row[0], "split"),
    *_FOUND,
)


def _costs(costs: Costs) -> Table:
    adapters = f"{costs.arms} adapter{'' if costs.arms == 1 else 's'}"
    rows = [
        ("this search (done)", costs.search),
        *((f"search with k = {k}, a new run", cost) for k, cost in costs.deeper.items()),
        (f"train {adapters}", costs.training),
        (f"audit {adapters}", costs.audit),
    ]
    unmeasured = []
    if costs.search.seconds is None:
        unmeasured.append("the search's seconds are not recorded")
    if costs.training.tokens is None:
        unmeasured.append("training needs a pool with token counts")
    elif costs.training.seconds is None:
        unmeasured.append("no training of this run has recorded its seconds")
    if costs.search.tokens is None:
        unmeasured.append("the backend returned no token ids to count")
    elif any(cost.tokens is None for cost in costs.deeper.values()):
        unmeasured.append("the number of samples of a search that stops early is unknown")
    note = (
        "Search and audit: generated tokens, at the rate of this run's search (wall time, "
        "including the start). Training: processed tokens, every condition at the recipe's matched "
        "budget, at the rate of this run's training."
    )
    return Frame(COSTS, rows).table(note + f" –: {'; '.join(unmeasured)}." * bool(unmeasured))


COSTS: tuple[Column[tuple[str, Spent]], ...] = (
    Column("", "costs", lambda row: row[0], "step"),
    Column("", "costs", lambda row: row[1].tokens, "tokens", rounded),
    Column("", "costs", lambda row: row[1].seconds, "time", duration),
)


def _percent(share: Share) -> str:
    return f"{percent(share.value)} {_interval(share.interval)}".strip()


def _points(share: Share) -> str:
    return f"{points(share.value)} {_change(share.interval)}".strip()


def results(of: Measured, found: Mapping[str, GapFindings]) -> dict[str, Any]:
    """Build the content of results.json (schema 1; keys in docs/gap.md)."""
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
        "notes": [note.line for note in notes(of, found)],
    }


def _filter(one: GapFindings) -> dict[str, Any]:
    return {
        "greedy": _share(one.greedy),
        "pass_at_k": {str(k): _share(share) for k, share in enumerate(one.pass_at, 1)},
        "gap": _share(one.gains[-1]) if one.gains else None,
        "beyond_k": {
            str(k): {"pass_at_k": _pair(of.pass_at_k), "p_S": _pair(of.p_s)}
            for k, of in one.beyond.items()
        },
        "states": one.verdicts.sizes,
        "p_S": _share(one.shares["S"]),
        "errors": one.errors,
    }


def _share(share: Share) -> dict[str, Any]:
    return {"value": float(share.value), "ci95": share.interval and _pair(share.interval)}


def _pair(interval: Interval) -> list[float]:
    return [interval.low, interval.high]


def _prospects(of: Prospects | None) -> dict[str, Any]:
    return {"prospects": None if of is None else asdict(of)}


def _items(of: Measured, found: Mapping[str, GapFindings]) -> Iterator[tuple[object, ...]]:
    """Yield a row for each filter and problem."""
    yield "filter", "problem_id", "doc_id", "state", "greedy", "passing", "samples"
    for name, one in found.items():
        verdicts = of.verdicts[name]
        columns = one.verdicts.states.tolist(), verdicts.greedy.tolist(), verdicts.passing.tolist()
        for (problem, row), state, greedy, passing in zip(of.ids.items(), *columns, strict=True):
            yield name, problem, row, state, int(greedy), passing, of.k


def explored(of: Measured, found: Mapping[str, GapFindings]) -> Explored:
    """Build the page's content from both logs, with the chosen filter's verdicts.

    The states under the other filters are fields to filter by.
    """
    (chosen, first), *others = found.items()
    words = [[_words(row) for row in pair] for pair in _pairs(of, chosen)]
    return Explored(
        title=f"The gap of {of.task}",
        remark=f"Split {of.split}, {of.k} samples of each problem; {of.judge}.",
        noun="problem",
        before="greedy",
        ids=list(of.ids),
        verdicts=[greedy[0] for greedy, _ in words],
        models=[],
        states="".join(first.verdicts.states.tolist()),
        k=of.k,
        passing=of.verdicts[chosen].passing.tolist(),
        samples=[samples for _, samples in words],
        fields={f"state by {name}": one.verdicts.states.tolist() for name, one in others},
        entries=lambda: (_entry(pair) for pair in _pairs(of, chosen)),
    )


def _pairs(of: Measured, chosen: str) -> Iterator[_Pair]:
    """Read the rows under the chosen filter, in the order of the problems."""
    logs = (SampleLog(log_at(of.logs[kind]), chosen) for kind in (GREEDY_LOG, SAMPLES_LOG))
    return zip(*logs, strict=True)


def _words(row: LogRow) -> list[str]:
    return [word(status) for status in row.statuses or ()]


def _entry(pair: _Pair) -> Entry:
    greedy, samples = pair
    return Entry(
        prompt=greedy.prompt,
        gold=greedy.gold,
        responses=[*greedy.texts, *samples.texts],
        document=greedy.document,
    )
