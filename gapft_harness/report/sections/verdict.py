"""The report's opening, in plain words, computed from the findings."""

from __future__ import annotations

from gapft_harness.core.records import SOURCE
from gapft_harness.report.findings.whole import (
    NOTHING_TO_TRAIN_ON,
    ConditionFindings,
    Contrast,
    Findings,
    budget_matched,
)
from gapft_harness.report.part import Opening
from gapft_harness.report.rendering import wording
from gapft_harness.report.rendering.blocks import Block, Stat, Stats, Text

#: Rivals that the opening compares the lead with, each in a sentence.
_SAID = 2


def opening(findings: Findings, k: int) -> list[Block]:
    """The verdict and the numbers that it rests on."""
    if not findings.conditions:
        return [Text(NOTHING_TO_TRAIN_ON, "lead"), Text(_source_alone(findings, k))]
    lead = findings.conditions[findings.lead]
    others = [c for c in findings.distinct.values() if c.name != lead.name]
    rivals = [c for c in others if budget_matched(c, lead)]
    sentences = [_against_source(findings, lead)]
    said_first = rivals[:_SAID] if len(rivals) > _SAID + 1 else rivals
    sentences += [_against(findings.contrast(lead.name, rival.name)) for rival in said_first]
    if more := len(rivals) - len(said_first):
        sentences.append(f"The other {more} conditions of this budget are compared below.")
    sentences.append(_worth(lead, k))
    openings = [said for of in findings.parts if (said := of.part.opening(findings, of.found))]
    for said in openings:
        sentences.insert(0 if said.first else len(sentences), said.sentence)
    sentences.append("Brackets are 95% intervals.")
    return [Text(" ".join(sentences), "lead"), Stats(_stats(findings, lead, rivals, openings, k))]


def _against_source(findings: Findings, lead: ConditionFindings) -> str:
    gain = findings.contrast(lead.name, SOURCE)
    seeds = len(lead.seeds)
    return (
        f"{_subject(lead.name)} answers {wording.percent(lead.mean.pass_at_1)} of "
        f"{wording.whole(findings.source.n)} audit problems correctly in one greedy decode"
        f"{f' (mean of {seeds} seeds)' if seeds > 1 else ''}; the source model answers "
        f"{wording.percent(findings.source.pass_at_1)}: {wording.points(gain.delta)} points "
        f"{wording.points_interval(gain.interval)}."
    )


def _against(contrast: Contrast) -> str:
    return (
        f"Against {_name(contrast.b)} at the same training budget: "
        f"{wording.points(contrast.delta)} points {wording.points_interval(contrast.interval)}; "
        f"{wording.resolution(contrast.interval)}."
    )


def _worth(lead: ConditionFindings, k: int) -> str:
    if lead.k_eq == 0:
        return "Its one decode is worth less than one sample of the source."
    at_least = "at least " if lead.k_eq == k else ""
    samples = "sample" if lead.k_eq == 1 else "samples"
    return (
        f"Its one decode is worth {at_least}{lead.k_eq} {samples} of the source with a verifier "
        "to choose among them."
    )


def _stats(
    findings: Findings,
    lead: ConditionFindings,
    rivals: list[ConditionFindings],
    openings: list[Opening],
    k: int,
) -> list[Stat]:
    stats = [
        Stat("source", wording.percent(findings.source.pass_at_1), "Pass@1, greedy"),
        Stat(
            _name(lead.name),
            wording.percent(lead.mean.pass_at_1),
            f"Pass@1 {wording.percent_interval(lead.interval)}",
        ),
    ]
    if rivals:
        contrast = findings.contrast(lead.name, rivals[0].name)
        stats.append(
            Stat(
                f"against {_name(rivals[0].name)}",
                wording.points(contrast.delta),
                f"points {wording.points_interval(contrast.interval)}",
            )
        )
    worth = Stat("worth in samples", wording.k_eq(lead.k_eq, k), f"K_eq, of {k} drawn")
    return [*stats, next((said.stat for said in openings if said.first and said.stat), worth)]


def _source_alone(findings: Findings, k: int) -> str:
    source = findings.source
    return (
        f"The source model answers {wording.percent(source.pass_at_1)} of "
        f"{wording.whole(source.n)} audit problems correctly in one greedy decode; with a verifier "
        f"to choose among {k} samples, {wording.percent(source.curve[k])}. Selection, training and "
        "audit of trained models were left out. A larger search.k, a higher temperature or an "
        "easier pool may expose failures that can be recovered."
    )


def _subject(name: str) -> str:
    """A condition as the subject of a sentence; GapFT alone is a name by itself."""
    return _name(name) if name == "gapft" else f"The condition {_name(name)}"


def _name(name: str) -> str:
    return wording.condition_name(name)
