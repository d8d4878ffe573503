"""The report's section on coverage against repetition."""

from __future__ import annotations

from fractions import Fraction

from gapft_harness.analysis.decomposition import STABLE_ITEMS
from gapft_harness.experiments.allocation.findings import RATES, Coverage, quantities
from gapft_harness.report.findings.whole import Findings
from gapft_harness.report.reading.inputs import ReportInputs
from gapft_harness.report.rendering import wording
from gapft_harness.report.rendering.blocks import Block, Figure, Table, Text
from gapft_harness.report.rendering.wording import condition_name, percent, points, whole

_LABELS = {
    "a_A_1": "a_A(1), A seen once",
    "a_A_2": "a_A(2), A seen twice",
    "a_B_0": "a_B(0), B never seen",
    "a_B_1": "a_B(1), B seen once",
    "coverage_gain": "coverage gain, a_B(1) − a_B(0)",
    "repetition_loss": "repetition loss, a_A(2) − a_A(1)",
    "contrast": "contrast, ½ gain − ½ loss",
}


def blocks(inputs: ReportInputs, findings: Findings, coverage: Coverage) -> list[Block]:
    """A sentence, the figure, the seven quantities, and what the two conditions were trained on."""
    return [
        Text(f"{result(coverage)} {_reasons(coverage)} {_transfer(findings, coverage)}"),
        _figure(findings, coverage),
        _table(inputs, coverage),
        _training(coverage),
    ]


def result(coverage: Coverage) -> str:
    """The contrast in a sentence."""
    contrast, interval = coverage.mean.contrast, coverage.intervals["contrast"]
    return (
        f"Training once on twice as many problems ({condition_name(coverage.diffuse)}), not twice "
        f"on half of them ({condition_name(coverage.concentrated)}), changes success on those "
        f"problems by {points(contrast)} points {wording.points_interval(interval)}; "
        f"{wording.resolution(interval)}."
    )


def _reasons(coverage: Coverage) -> str:
    mean, intervals = coverage.mean, coverage.intervals
    gain, loss = (
        f"{points(value)} points {wording.points_interval(intervals[name])}"
        for name, value in (
            ("coverage_gain", mean.coverage_gain),
            ("repetition_loss", mean.repetition_loss),
        )
    )
    return (
        f"It is half of what a first exposure adds on the new half B, {gain}, minus half of what "
        f"a second exposure adds on the shared half A, {loss}."
    )


def _transfer(findings: Findings, coverage: Coverage) -> str:
    contrast = findings.contrast(coverage.diffuse, coverage.concentrated)
    return (
        "On the audit, whose problems neither was trained on, the difference is "
        f"{points(contrast.delta)} points {wording.points_interval(contrast.interval)}."
    )


def _figure(findings: Findings, coverage: Coverage) -> Figure:
    rates = quantities(coverage.mean)
    contrast = findings.contrast(coverage.diffuse, coverage.concentrated)
    terms = contrast.terms
    pale = "; pale, each seed" if len(coverage.seeds) > 1 else ""
    names = f"{condition_name(coverage.diffuse)} − {condition_name(coverage.concentrated)}"
    return Figure(
        "allocation",
        "Success on the problems trained on: "
        + ", ".join(f"{_LABELS[name]} {percent(rates[name])}" for name in RATES)
        + ". Audit difference by source state: "
        + ", ".join(
            f"{s} {points(t)}" for s, t in zip("SUG", (terms.s, terms.u, terms.g), strict=True)
        )
        + " points.",
        "Left: success on the shared half A and the new half B by exposures, with 95% intervals"
        f"{pale}. Right: the difference on the audit, {names}, as the sum of its parts by source "
        "state.",
    )


def _table(inputs: ReportInputs, coverage: Coverage) -> Table:
    mean = quantities(coverage.mean)
    by_seed = [quantities(of.found) for of in coverage.seeds.values()]
    rows = []
    for name, interval in coverage.intervals.items():
        rate = name in RATES
        write = percent if rate else points
        rows.append(
            [
                _LABELS[name],
                write(mean[name]),
                wording.percent_interval(interval) if rate else wording.points_interval(interval),
                *(write(of[name]) for of in by_seed),
            ]
        )
    one_seed = len(by_seed) == 1
    note = (
        "Success: share of a half's problems that one greedy decode of the trained model solves"
        f"{'' if one_seed else '; mean over seeds, each with halves of its own'}. "
        f"{condition_name(coverage.diffuse)} gives a_A(1) and a_B(1), "
        f"{condition_name(coverage.concentrated)} a_A(2) and a_B(0). Differences in percentage "
        "points. As the halves are of one size, the contrast is the difference of the two "
        "conditions over A and B together. Intervals are percentiles of "
        f"{whole(inputs.recipe['statistics']['replicates'])} paired replicates that resample "
        "training seeds and problems, both jointly for the two conditions; a draw without any "
        "problem of some half is drawn again. These problems were trained on: the rates say what "
        "was learnt of them, not how well it transfers."
    )
    if coverage.repetitions > 1:
        note += (
            f" Exposures count selections: each was repeated R = {coverage.repetitions} times in "
            "training, in both conditions."
        )
    smallest = min(of.problems for of in coverage.seeds.values())
    if smallest < STABLE_ITEMS:
        note += f" Unstable: the smallest half has {smallest} problems, fewer than {STABLE_ITEMS}."
    columns = ["quantity", "mean", "95% interval", *(f"seed {seed}" for seed in coverage.seeds)]
    if one_seed:
        columns, rows = [columns[0], columns[3], columns[2]], [row[:3] for row in rows]
    return Table(columns, rows, note=note)


def _training(coverage: Coverage) -> Table:
    rows = []
    for seed, of in coverage.seeds.items():
        once, twice = of.diffuse.supervised_tokens, of.concentrated.supervised_tokens
        share = percent(Fraction(abs(once - twice), max(once, twice, 1)), 2)
        counts = (of.problems, of.problems, of.replay, once, twice)
        difference = f"{wording.signed_whole(once - twice)} ({share})"
        rows.append([str(seed), *(whole(count) for count in counts), difference])
    diffuse, concentrated = (
        condition_name(name) for name in (coverage.diffuse, coverage.concentrated)
    )
    return Table(
        ["seed", "A", "B", "replay", f"tokens, {diffuse}", f"tokens, {concentrated}", "difference"],
        rows,
        note=f"Read off the training sets and checked: {diffuse} holds every problem of A and B "
        f"once, {concentrated} every problem of A twice and none of B, and both hold the same "
        "replay of solved problems, response by response. Tokens: supervised response tokens over "
        "all exposures; the difference also as a share of the larger.",
    )
