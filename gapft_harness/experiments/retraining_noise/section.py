"""Retraining noise as a section of the report, for results.json, and as a table."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from gapft_harness.experiments.retraining_noise.findings import NoiseFindings, Replicate, total
from gapft_harness.report.findings.whole import Findings
from gapft_harness.report.rendering.blocks import Block, Table, Text
from gapft_harness.report.rendering.wording import (
    condition_name,
    percent,
    percent_interval,
    points,
    whole,
)
from gapft_harness.report.results import number

#: What a replicate of each name says of what was drawn anew.
_ANEW = {
    "none": "nothing",
    "order": "the order of examples",
    "dropout": "dropout",
    "adapter": "the initial adapter",
    "all": "all three",
}


def blocks(findings: Findings, found: NoiseFindings) -> list[Block]:
    """What came of it in words, every replicate, and how far training seeds are apart."""
    return [Text(_result(found)), _replicates(found), _spreads(findings, found)]


def content(found: NoiseFindings) -> dict[str, Any]:
    """For results.json."""
    return {
        "replicates": [
            {
                "condition": of.arm.condition,
                "seed": of.arm.seed,
                "vary": of.arm.variant,
                "n": of.changes.n,
                "changed": of.changes.changed,
                "lost": of.changes.lost,
                "gained": of.changes.gained,
                "delta": float(of.changes.difference),
                "reworded": of.worded,
                "same_weights": of.same,
            }
            for of in found.replicates
        ],
        "between_seeds": {
            name: {
                "seeds": of.seeds,
                "changed_share": number(of.share),
                "pass_at_1": [float(of.lowest), float(of.highest)],
            }
            for name, of in found.spreads.items()
        },
    }


def rows(found: NoiseFindings) -> Iterator[Sequence[object]]:
    """A line a replicate; the first names the columns."""
    yield (
        "condition", "seed", "vary", "n", "changed", "lost", "gained", "delta", "reworded",
        "same_weights",
    )  # fmt: skip
    for of in content(found)["replicates"]:
        yield tuple(str(value).lower() if value is True or value is False else value
                    for value in of.values())  # fmt: skip


def _result(found: NoiseFindings) -> str:
    sentences = []
    again = [of for of in found.replicates if of.arm.variant == "none"]
    if again:
        sentences.append(_repeated(again))
    sources = dict.fromkeys(of.arm.variant for of in found.replicates if of.arm.variant != "none")
    for source in sources:
        group = [of for of in found.replicates if of.arm.variant == source]
        sentences.append(f"With {_ANEW[source]} drawn anew, {_changed(group)}.")
    return " ".join(sentences)


def _repeated(group: Sequence[Replicate]) -> str:
    """What training again with nothing drawn anew came to."""
    together = total(group)
    same = sum(of.same for of in group)
    count = f"{whole(len(group))} adapter{'s' * (len(group) > 1)}"
    if same == len(group) and not together.changed and not any(of.worded for of in group):
        return (
            f"Trained again with nothing drawn anew, {count} came out the same to the byte: "
            f"{whole(0)} of {whole(together.n)} decisions changed. Training and decoding repeat on "
            "this machine; another one, a GPU above all, may not."
        )
    weights = (
        f"the weights are the same to the byte in {whole(same)} of {count}"
        if same
        else f"no weights of {count} are the same to the byte"
    )
    text = f"Trained again with nothing drawn anew, {_changed(group)}; {weights}."
    return text + (" So it is decoding that does not repeat here." if same == len(group) else "")


def _changed(group: Sequence[Replicate]) -> str:
    """All their decisions that changed, and the extremes of Pass@1: a sum of both would cancel."""
    of, each = total(group), [one.changes.difference for one in group]
    by = " to ".join(points(end, 2) for end in dict.fromkeys((min(each), max(each))))
    return (
        f"{whole(of.changed)} of {whole(of.n)} decisions changed ({percent(of.share)}), and Pass@1 "
        f"by {by} points"
    )


def _replicates(found: NoiseFindings) -> Table:
    table = []
    for of in found.replicates:
        counts = of.changes
        table.append(
            [
                condition_name(of.arm.condition),
                _ANEW[of.arm.variant],
                str(of.arm.seed),
                f"{whole(counts.changed)} of {whole(counts.n)}",
                *(whole(count) for count in (counts.lost, counts.gained)),
                points(counts.difference, 2),
                whole(of.worded),
                "the same" if of.same else "differ",
            ]
        )
    return Table(
        [
            *("condition", "drawn anew", "seed", "changed", "right → wrong", "wrong → right"),
            *("Pass@1", "reworded", "weights"),
        ],
        table,
        words=2,
        note="Each line is an arm and its replicate, trained on the same examples. Changed: audit "
        "problems that one of the two has right and the other wrong. Pass@1: of the replicate "
        "minus that of the arm, in percentage points. Reworded: responses with another text, right "
        "or wrong. Weights: whether the two adapters are the same to the byte.",
    )


def _spreads(findings: Findings, found: NoiseFindings) -> Table:
    groups = found.groups()
    sources = list(dict.fromkeys(source for _, source in groups))
    table = []
    for name, spread in found.spreads.items():
        lowest, highest = percent(spread.lowest), percent(spread.highest)
        table.append(
            [
                condition_name(name),
                *(percent(total(groups[name, source]).share) for source in sources),
                percent(spread.share),
                f"{lowest} to {highest}" if spread.seeds > 1 else lowest,
                percent_interval(findings.conditions[name].interval),
            ]
        )
    return Table(
        [
            "condition",
            *sources,
            *("between seeds", "Pass@1 of seeds", "95% interval"),
        ],
        table,
        words=1,
        note="Share of the audit's decisions that changed, mean over replicates, by what was drawn "
        "anew (none: nothing). Between seeds: the share in which two training seeds of the "
        "condition differ, mean over pairs; where the selector draws, seeds have other examples, "
        "too. Interval: of the condition's mean Pass@1, over seeds and problems. Conditions are "
        "compared by such intervals, and not by single trainings.",
    )
