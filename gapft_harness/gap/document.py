"""The gap of a task: pages, tables and results of ``gapft gap``."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import groupby
from typing import Any

from gapft_harness.analysis.decomposition import STABLE_ITEMS
from gapft_harness.analysis.estimate import Estimate
from gapft_harness.analysis.pass_at_k import list_reported_k
from gapft_harness.core.records import State
from gapft_harness.gap.findings import REPLICATES, GapFindings
from gapft_harness.gap.logs import GREEDY_LOG, SAMPLES_LOG
from gapft_harness.gap.measuring import MeasuredSearch
from gapft_harness.gap.prospects import Prospects
from gapft_harness.gap.searched import SearchedRun
from gapft_harness.outcomes.logs import Log, open_log
from gapft_harness.outcomes.samples import VERDICT, Sample, list_filters, name_score
from gapft_harness.outcomes.verdicts import Verdicts
from gapft_harness.report.explorer import packing as explorer
from gapft_harness.report.explorer.content import ExplorerContent, ProblemTexts, format_verdict
from gapft_harness.report.frame import CI95, Column, Frame
from gapft_harness.report.reading.audits import find_deployment
from gapft_harness.report.rendering.blocks import Block, Section, Table, Text, group_remarks
from gapft_harness.report.rendering.document import Document
from gapft_harness.report.rendering.wording import (
    STATE_NAMES,
    describe_deployment,
    format_count,
    listed,
    percent,
    percent_interval,
    points,
    points_interval,
)

#: The responses to a problem under one filter: the greedy one, and the samples.
_Pair = tuple[list[Sample], list[Sample]]


#: The pages and the results.
NAMES = ("gap.html", "gap.md", "results.json")


def build_document(
    search: MeasuredSearch, findings: Mapping[str, GapFindings], prospects: Prospects | None
) -> Document:
    """Build the document for a searched task, with a page of every problem.

    Args:
        search: the judged search.
        findings: by filter, the chosen one first.
        prospects: prospects of training; None if unknown.
    """
    first = next(iter(findings.values()))
    lead = _format_lead(search.task, search.split, first, search.judge, search.facts["config"])
    sections = [_build_gap_section(lead, list_notes(search, findings), search.k, first)]
    if len(findings) > 1:
        sections.append(
            Section(
                "By filter",
                [_build_table(FILTERS, search.k, findings, f"{_CHOSEN_NOTE} {_GAP_NOTE}")],
            )
        )
    return Document(
        title=f"The gap of {search.task}",
        sections=[*sections, _build_pay_section(prospects)],
        names=NAMES,
        results={**build_results(search, findings), **_build_prospects_entry(prospects)},
        tables={
            "gap.csv": Frame(CURVE, list_rates(findings)).csv(),
            "items.csv": _list_item_rows(search, findings),
        },
        explorer=explorer.render_explorer(build_explored(search, findings)),
    )


def build_run_document(
    run: SearchedRun,
    findings: Mapping[str, GapFindings],
    prospects: Prospects | None,
) -> Document:
    """Build the document for a run's search.

    Args:
        run: the run.
        findings: by split.
        prospects: prospects of training; None if unknown.
    """
    split = "audit" if "audit" in findings else "pool"
    judge = f"verifier {run.verifier}"
    lead = _format_lead(run.task, split, findings[split], judge, run.recipe)
    sections = [_build_gap_section(lead, list_run_notes(run, findings), run.k, findings[split])]
    if len(findings) > 1:
        sections.append(Section("By split", [_build_table(SPLITS, run.k, findings, _GAP_NOTE)]))
    return Document(
        title=f"The gap of {run.task}",
        sections=[*sections, _build_pay_section(prospects)],
        names=NAMES,
        results={
            "schema": 1,
            "task": run.task,
            "k": run.k,
            "judge": judge,
            "splits": {
                name: _build_filter_entry(split_findings)
                for name, split_findings in findings.items()
            },
            **_build_prospects_entry(prospects),
            "notes": [note.line for note in list_run_notes(run, findings)],
        },
    )


def list_run_notes(run: SearchedRun, findings: Mapping[str, GapFindings]) -> Iterator[Text]:
    """Yield notes about a run's figures."""
    for warning in run.warnings:
        yield Text(warning, "warning")
    yield from _note_deployment(run.recipe)
    for split, split_findings in findings.items():
        count = len(split_findings.verdicts.passing)
        if count < STABLE_ITEMS:
            few = f"{split}: {count} problems, fewer than {STABLE_ITEMS}"
            yield Text(f"{few}: their shares are unstable", "warning")
        if fault := split_findings.verdicts.voting_fault:
            yield Text(f"{split}: maj@K is not shown, since {fault} (verifier {run.verifier})")


def _note_deployment(recipe: Mapping[str, Any]) -> Iterator[Text]:
    if deployment := find_deployment(recipe):
        yield Text(f"{describe_deployment(deployment)} In files it is named greedy.")


def list_notes(search: MeasuredSearch, findings: Mapping[str, GapFindings]) -> Iterator[Text]:
    """Yield notes about the figures."""
    yield from _note_deployment(search.facts["config"])
    if (repeats := search.facts["repeats"]) > 1:
        drawn = f"{search.k} samples were drawn (--k)"
        yield Text(f"the task's own repeats ({repeats}) are not used: {drawn}")
    if search.voting:
        sentence = f"cannot judge a single one, and are left out: {listed(list(search.voting))}"
        yield Text(f"filters that need several responses {sentence}")
    for name, filter_findings in findings.items():
        if filter_findings.errors:
            yield Text(
                f"filter {name}: {format_count(filter_findings.errors)} of "
                f"{format_count(_count_responses(filter_findings.verdicts))} responses could not "
                "be judged and count as not passed; see the logs for reasons"
            )
        if fault := filter_findings.verdicts.voting_fault:
            yield Text(f"filter {name}: maj@K is not shown, since {fault}")
    if search.changed:
        yield Text(
            f"filter {next(iter(findings))}: {format_count(search.changed)} verdicts differed when "
            "judged again; the figures use those of the search",
            "warning",
        )


def _count_responses(verdicts: Verdicts) -> int:
    return int(verdicts.deployed.size) + len(verdicts.passing) * verdicts.k


def _format_lead(
    task: str, split: str, findings: GapFindings, judge: str, recipe: Mapping[str, Any]
) -> str:
    decode = "one sampled deployment decode" if find_deployment(recipe) else "one greedy decode"
    return (
        f"{task}, {split}: {format_count(len(findings.verdicts.passing))} problems, {decode} and "
        f"{findings.verdicts.k} samples of each; {judge}."
    )


def _build_gap_section(lead: str, notes: Iterable[Text], k: int, findings: GapFindings) -> Section:
    bound = (
        f"On {_format_percent(findings.shares['S'])} of all problems the greedy decode fails and "
        f"one of {k} samples passes. This is p_S, the largest gain from correcting recovered "
        "problems."
    )
    if findings.gains:
        bound += f" Pass@{k} − Pass@1 is {_format_points(findings.gains[-1])} points."
    blocks: list[Block] = [
        _build_curve_table(k, findings),
        _build_state_table(findings),
        Text(bound),
    ]
    return Section("The gap", [Text(lead, "lead"), *group_remarks(notes), *blocks])


def _build_pay_section(prospects: Prospects | None) -> Section:
    if prospects is None:
        text = "No audit was searched; set the number of audit items: --items M."
        return Section(_PAY_TITLE, [Text(text)])
    answer, reason = prospects.verdict.answer, prospects.verdict.why
    return Section(_PAY_TITLE, [Text(f"{answer.capitalize()}. {reason}"), Text(prospects.power)])


_PAY_TITLE = "Will it pay to train?"
_CHOSEN_NOTE = "The first filter is the chosen one."
_GAP_NOTE = "Gap: Pass@K − Pass@1."


def _build_curve_table(k: int, findings: GapFindings) -> Table:
    shown_ks = (0, *list_reported_k(k))  # gap.csv has every k
    rows = [rate for rate in list_rates({"": findings}) if rate.k in shown_ks]
    note = (
        f"Unbiased, over problems; intervals from {format_count(REPLICATES)} bootstrap replicates."
    )
    if findings.majority:
        note += f" maj@{k}: the most frequent answer of {k} samples, without a verifier."
    return Frame(CURVE, rows).table(note)


@dataclass(frozen=True, slots=True)
class Rate:
    """A point of Pass@k; k = 0 is the greedy decode.

    Attributes:
        filter: the filter, or empty.
        k: number of samples.
        value: the accuracy.
        interval: its 95% interval.
        gain: the accuracy minus Pass@1.
        rule: ``Pass``, or ``maj`` for the majority vote of K samples; ``greedy`` for k = 0.
    """

    filter: str
    k: int
    estimate: Estimate
    gain: Estimate | None = None
    rule: str = "Pass"

    @property
    def label(self) -> str:
        """The row's name for people."""
        return f"{self.rule}@{self.k}" if self.k else self.rule


def list_rates(findings: Mapping[str, GapFindings]) -> list[Rate]:
    """List the greedy decode and every k for each filter."""
    rows = []
    for name, filter_findings in findings.items():
        greedy = filter_findings.greedy
        rows.append(Rate(name, 0, greedy, rule="greedy"))
        shares = enumerate(zip(filter_findings.pass_at, filter_findings.gains, strict=True), 1)
        rows += [Rate(name, k, share, gain) for k, (share, gain) in shares]
        if share := filter_findings.majority:
            gain = filter_findings.majority_gain
            k = filter_findings.verdicts.k
            rows.append(Rate(name, k, share, gain, "maj"))
    return rows


def _format_interval(estimate: Estimate) -> str:
    return percent_interval(estimate) if estimate.has_interval else ""


def _format_change(estimate: Estimate) -> str:
    return points_interval(estimate) if estimate.has_interval else ""


def _gain_formatter(format_share: Callable[[Estimate], str]) -> Callable[[Rate], str]:
    """Return a function that formats a gain; empty for k up to 1."""
    return lambda rate: "" if rate.gain is None or rate.k == 1 else format_share(rate.gain)


_PASSES = "of `greedy`, `Pass@k` (Equation 1) and `maj@K` (a majority vote)"
_GAIN = "Pass@k or maj@K minus Pass@1, all of samples"
CURVE: tuple[Column[Rate], ...] = (
    Column("filter", "", lambda rate: rate.filter),
    Column("k", "", lambda rate: rate.label if rate.rule == "maj" else rate.k or "greedy"),
    Column("", "", lambda rate: rate.label, ""),
    Column("rate", _PASSES, lambda rate: rate.estimate.value, "passes", percent),
    Column(
        "ci95", _PASSES, lambda rate: rate.estimate, "95% interval", _format_interval,
        names=CI95,
    ),
    Column("gain", "", lambda rate: rate.gain and rate.gain.value),
    Column(
        "gain_ci95", "", lambda rate: rate.gain,
        names=("gain_low", "gain_high"),
    ),
    Column("", _GAIN, _gain_formatter(lambda share: points(share.value)), "− Pass@1 (points)"),
    Column(
        "", _GAIN, _gain_formatter(_format_change), "95% interval",
    ),
)  # fmt: skip


def _build_state_table(findings: GapFindings) -> Table:
    rows = [
        (state, findings.verdicts.sizes[state], share) for state, share in findings.shares.items()
    ]
    return Frame(STATES, rows).table()


_STATE = "G, S and U; the share of S is p_S"
STATES: tuple[Column[tuple[State, int, Estimate]], ...] = (
    Column("", _STATE, lambda row: f"{row[0]}: {STATE_NAMES[row[0]]}", "state"),
    Column("", _STATE, lambda row: row[1], "problems", format_count),
    Column("", _STATE, lambda row: row[2].value, "share", percent),
    Column("", _STATE, lambda row: row[2], "95% interval", _format_interval),
)


FilterRow = tuple[str, GapFindings]
_BY = "by this filter or of this split"


def _build_table(
    columns: Sequence[Column[FilterRow]], k: int, findings: Mapping[str, GapFindings], note: str
) -> Table:
    return Frame(columns, [*findings.items()]).table(note, fill={"Pass@K": f"Pass@{k}"})


_FOUND: tuple[Column[FilterRow], ...] = (
    Column("", _BY, lambda row: row[1].greedy.value, "greedy", percent),
    Column("", _BY, lambda row: row[1].pass_at[0].value, "Pass@1", percent),
    Column("", _BY, lambda row: row[1].pass_at[-1].value, "Pass@K", percent),
    Column("", _BY, lambda row: row[1].gains[-1].value, "gap (points)", points),
    Column(
        "", _BY, lambda row: row[1].gains[-1], "95% interval",
        _format_change,
    ),
    Column("", _BY, lambda row: row[1].verdicts.sizes["G"], "G", format_count),
    Column("", _BY, lambda row: row[1].verdicts.sizes["S"], "S", format_count),
    Column("", _BY, lambda row: row[1].verdicts.sizes["U"], "U", format_count),
)  # fmt: skip
FILTERS: tuple[Column[FilterRow], ...] = (
    Column("", "the task's filter that reads the answer", lambda row: row[0], "filter"),
    *_FOUND,
)
SPLITS: tuple[Column[FilterRow], ...] = (
    Column("", "of the run", lambda row: row[0], "split"),
    *_FOUND,
)


def _format_percent(share: Estimate) -> str:
    return f"{percent(share.value)} {_format_interval(share)}".strip()


def _format_points(share: Estimate) -> str:
    return f"{points(share.value)} {_format_change(share)}".strip()


def build_results(search: MeasuredSearch, findings: Mapping[str, GapFindings]) -> dict[str, Any]:
    """Build the content of results.json (schema 1; keys in docs/gap.md)."""
    return {
        "schema": 1,
        "task": search.task,
        "version": search.facts["version"],
        "split": search.split,
        "n": len(search.rows_by_id),
        "k": search.k,
        "metric": search.metric,
        "judge": search.judge,
        "filter": next(iter(findings)),
        "filters": {
            name: _build_filter_entry(filter_findings) for name, filter_findings in findings.items()
        },
        "search": search.facts["config"]["search"],
        "source": search.facts["source"],
        "notes": [note.line for note in list_notes(search, findings)],
    }


def _build_filter_entry(findings: GapFindings) -> dict[str, Any]:
    return {
        "greedy": _build_share_entry(findings.greedy),
        "pass_at_k": {
            str(k): _build_share_entry(share) for k, share in enumerate(findings.pass_at, 1)
        },
        "maj_at_k": findings.majority
        and {str(findings.verdicts.k): _build_share_entry(findings.majority)},
        "gap": _build_share_entry(findings.gains[-1]) if findings.gains else None,
        "states": findings.verdicts.sizes,
        "p_S": _build_share_entry(findings.shares["S"]),
        "errors": findings.errors,
    }


def _build_share_entry(share: Estimate) -> dict[str, Any]:
    return {
        "value": float(share.value),
        "ci95": [share.low, share.high] if share.has_interval else None,
    }


def _build_prospects_entry(prospects: Prospects | None) -> dict[str, Any]:
    """Build the entry ``prospects`` of results.json."""
    return {"prospects": None if prospects is None else asdict(prospects)}


def _list_item_rows(
    search: MeasuredSearch, findings: Mapping[str, GapFindings]
) -> Iterator[tuple[object, ...]]:
    """Yield a row for each filter and problem."""
    yield "filter", "problem_id", "doc_id", "state", "greedy", "passing", "samples"
    for name, filter_findings in findings.items():
        verdicts = search.verdicts[name]
        columns = (
            filter_findings.verdicts.states.tolist(),
            verdicts.deployed.tolist(),
            verdicts.passing.tolist(),
        )
        for (problem, row), state, greedy, passing in zip(
            search.rows_by_id.items(), *columns, strict=True
        ):
            yield name, problem, row, state, int(greedy), passing, search.k


def build_explored(search: MeasuredSearch, findings: Mapping[str, GapFindings]) -> ExplorerContent:
    """Build the page's content from both logs, with the chosen filter's verdicts.

    The states under the other filters are fields to filter by.
    """
    (chosen, first), *others = findings.items()
    words = [
        [[_name_verdict(sample, chosen) for sample in side] for side in pair]
        for pair in _read_pairs(search, chosen)
    ]
    return ExplorerContent(
        title=f"The gap of {search.task}",
        remark=f"Split {search.split}, {search.k} samples of each problem; {search.judge}.",
        noun="problem",
        before="greedy",
        ids=list(search.rows_by_id),
        verdicts=[greedy for (greedy,), _ in words],
        models=[],
        states="".join(first.verdicts.states.tolist()),
        k=search.k,
        passing=search.verdicts[chosen].passing.tolist(),
        samples=[samples for _, samples in words],
        fields={
            f"state by {name}": filter_findings.verdicts.states.tolist()
            for name, filter_findings in others
        },
        entries=lambda: map(_build_entry, _read_pairs(search, chosen)),
    )


def _read_pairs(search: MeasuredSearch, chosen: str) -> Iterator[_Pair]:
    """Read the rows under the chosen filter, in the order of the problems."""
    groups = [
        groupby(
            _select_samples(open_log(search.logs[kind]), chosen), key=lambda sample: sample.line
        )
        for kind in (GREEDY_LOG, SAMPLES_LOG)
    ]
    for (_, greedy), (_, samples) in zip(*groups, strict=True):
        yield [*greedy], [*samples]


def _select_samples(log: Log, chosen: str) -> Iterator[Sample]:
    return (sample for sample in log.read_samples() if chosen in list_filters(sample))


def _name_verdict(sample: Sample, chosen: str) -> str:
    status = sample.reason.partition(":")[0]
    if status not in ("error", "timeout"):
        status = "pass" if sample.scores[name_score(VERDICT, chosen)] else "fail"
    return format_verdict(status)


def _build_entry(pair: _Pair) -> ProblemTexts:
    (greedy,), samples = pair
    return ProblemTexts(
        prompt=greedy.question,
        gold=str(greedy.gold),
        responses=[str(greedy.text), *(str(sample.text) for sample in samples)],
        document=dict(greedy.problem),
    )
