"""Retraining noise: changes between trainings with the same data, settings and seeds."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from gapft_harness.analysis.paired import DecisionChanges
from gapft_harness.report.findings.computation import Findings
from gapft_harness.report.findings.replicates import RepeatedCondition, Retraining
from gapft_harness.report.frame import CI95, Column, Frame
from gapft_harness.report.rendering.blocks import Block, Text
from gapft_harness.report.rendering.wording import (
    capitalize_first,
    condition_name,
    format_count,
    percent,
    points,
    points_interval,
)

_CHANGED = "audit decisions that differ from those of the original training"
_DELTA = "the replicate minus the condition it repeats, over audit problems and seeds"
_format_points = partial(points, digits=2)


def _format_count(changes: DecisionChanges) -> str:
    return f"{format_count(changes.changed)} of {format_count(changes.n)}"


def _name_columns(replicate: Callable[[Any], RepeatedCondition]) -> Iterator[Column[Any]]:
    """Declare the columns of the replicate and the condition it repeats."""
    name = lambda row: replicate(row).condition  # noqa: E731
    yield Column("condition", "", name, "replicate", condition_name)
    original = lambda row: replicate(row).original  # noqa: E731
    yield Column("original", "the repeated condition", original, "of", condition_name)


def _count_columns(changes: Callable[[Any], DecisionChanges]) -> Iterator[Column[Any]]:
    """Declare the columns of the decisions that changed."""
    yield Column("n", "", lambda row: changes(row).n)
    yield Column("changed", "", lambda row: changes(row).changed)
    yield Column("", _CHANGED, changes, "changed", _format_count)
    yield Column("lost", _CHANGED, lambda row: changes(row).lost, "right → wrong", format_count)
    yield Column("gained", _CHANGED, lambda row: changes(row).gained, "wrong → right", format_count)
    yield Column("delta", _DELTA, lambda row: changes(row).difference, "Pass@1", _format_points)


REPLICATES: tuple[Column[tuple[Findings, RepeatedCondition]], ...] = (
    *_name_columns(lambda row: row[1]),
    *_count_columns(lambda row: row[1].changes),
    Column(
        "ci95",
        _DELTA,
        lambda row: row[0].find_contrast(row[1].condition, row[1].original).estimate,
        "95% interval",
        points_interval,
        names=CI95,
    ),
)
RETRAININGS: tuple[Column[tuple[RepeatedCondition, Retraining]], ...] = (
    *_name_columns(lambda row: row[0]),
    Column("seed", "", lambda row: row[1].seed, "seed"),
    *_count_columns(lambda row: row[1].changes),
    Column(
        "reworded",
        "responses with another text",
        lambda row: row[1].reworded,
        "reworded",
        format_count,
    ),
    Column(
        "same_weights",
        "whether the two adapters have the same bytes",
        lambda row: row[1].same_weights,
        "weights",
        lambda same: "not known" if same is None else "the same" if same else "differ",
    ),
)


def frame_totals(findings: Findings) -> Frame[tuple[Findings, RepeatedCondition]]:
    """Frame the replicates, a row each."""
    return Frame(REPLICATES, [(findings, replicate) for replicate in findings.replicates])


def frame_seeds(findings: Findings) -> Frame[tuple[RepeatedCondition, Retraining]]:
    """Frame the replicates, a row for each of their seeds."""
    rows = [
        (replicate, retraining)
        for replicate in findings.replicates
        for retraining in replicate.retrainings
    ]
    return Frame(RETRAININGS, rows)


def describe_changes(findings: Findings, replicate: RepeatedCondition) -> str:
    """Describe in a sentence the changes between a replicate and the condition it repeats."""
    contrast = findings.find_contrast(replicate.condition, replicate.original)
    changes = replicate.changes
    return (
        f"{capitalize_first(condition_name(replicate.condition))} repeats the training of "
        f"{condition_name(replicate.original)} with the same data, settings and seeds: "
        f"{_format_count(changes)} decisions changed ({percent(changes.share)}), "
        f"{format_count(changes.lost)} from right to wrong and {format_count(changes.gained)} from "
        f"wrong to right, and Pass@1 by {_format_points(changes.difference)} points "
        f"{points_interval(contrast.estimate)}."
    )


def _describe_repetition(replicate: RepeatedCondition) -> str:
    """Describe whether training and decoding are deterministic on the machine of the run."""
    same_weights = [retraining.same_weights for retraining in replicate.retrainings]
    if None in same_weights:
        return "Whether the adapters have the same bytes is not known."
    if not all(same_weights):
        return (
            f"{format_count(same_weights.count(True))} of {format_count(len(same_weights))} "
            "adapters have the same bytes: training is not deterministic on this machine. A "
            "difference of this size between two conditions may have no other cause."
        )
    if any(retraining.reworded for retraining in replicate.retrainings):
        return (
            "All adapters have the same bytes: training is deterministic on this machine, but "
            "decoding is not."
        )
    return (
        "All adapters and responses have the same bytes. This is expected in float32 on a CPU, so "
        "zero changed decisions is the correct result. Training on a GPU may not be "
        "deterministic; then the counts show how much changes without any cause."
    )


def build_blocks(findings: Findings) -> list[Block]:
    """Build the section: sentences, the totals, and every seed folded."""
    texts = [
        Text(f"{describe_changes(findings, replicate)} {_describe_repetition(replicate)}")
        for replicate in findings.replicates
    ]
    totals = frame_totals(findings).table(
        "Changed: audit decisions that are right after one of the two trainings and wrong after "
        "the other, all seeds together. Pass@1: the replicate minus the condition it repeats, in "
        "percentage points; its interval is that of the contrasts.",
        words=2,
    )
    seeds = frame_seeds(findings).table(
        "Reworded: responses with another text, right or wrong.", words=2, summary="Every seed"
    )
    return [*texts, totals, seeds]


def build_content(findings: Findings) -> list[dict[str, Any]]:
    """Build the entries for results.json: each replicate with its seeds."""
    seeds = frame_seeds(findings).entries()
    return [
        {
            **entry,
            "seeds": [
                {
                    key: value
                    for key, value in seed_entry.items()
                    if key not in ("condition", "original")
                }
                for seed_entry in seeds
                if seed_entry["condition"] == entry["condition"]
            ],
        }
        for entry in frame_totals(findings).entries()
    ]
