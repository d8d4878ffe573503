"""Would another rule say otherwise? So that a change of form does not pass for accuracy."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gapft_harness.analysis.bootstrap import Difference, replicate
from gapft_harness.core.records import SOURCE, STATUSES
from gapft_harness.core.streams import Stream
from gapft_harness.report.figures.contrasts import named as contrast_name
from gapft_harness.report.figures.contrasts import principal
from gapft_harness.report.findings.whole import Contrast, Findings
from gapft_harness.report.frame import Column, Frame
from gapft_harness.report.reading.audits import OPENS_RIGHT, VALID
from gapft_harness.report.reading.columns import PASS
from gapft_harness.report.reading.inputs import ReportInputs
from gapft_harness.report.rendering.blocks import Block, Text
from gapft_harness.report.rendering.wording import (
    condition_name,
    percent,
    points,
    points_interval,
    whole,
)

TITLE = "Would another rule say otherwise?"
_UNJUDGED = (STATUSES.index("error"), STATUSES.index("timeout"))


@dataclass(frozen=True, slots=True)
class Agreement:
    """One model's responses under both rules; of a condition all seeds together.

    Attributes:
        responses: how many were judged by both; all that follows is of these.
        unjudged: how many were not: an error or time-out of either rule.
        own: right under the run's rule.
        other: right under the other.
        only_own: right under the run's rule alone.
        only_other: right under the other alone.
    """

    responses: int
    unjudged: int
    own: int
    other: int
    only_own: int
    only_other: int

    def share(self, count: int) -> Fraction:
        """A count as a share of the responses."""
        return Fraction(count, self.responses)

    @property
    def disagreement(self) -> Fraction:
        """The share of responses that the rules do not agree on."""
        return self.share(self.only_own + self.only_other)


_MODEL = "whose responses; which difference"
_RULES = (
    "share right by the run's verifier and by "
    "[the other](report.md#would-another-rule-say-otherwise), or the difference of two"
)
_DISAGREE = "responses on which they differ, and their share"
#: A model's name (the source's is empty), its responses under both rules, and the source's.
AGREEMENT: tuple[Column[tuple[str, Agreement, Agreement]], ...] = (
    Column("", _MODEL, lambda row: _model_name(row[0]), "model"),
    Column("run_rule", _RULES, lambda row: row[1].share(row[1].own), "run's rule", percent),
    Column("other_rule", _RULES, lambda row: row[1].share(row[1].other), "other rule", percent),
    Column(
        "only_run_rule", _DISAGREE, lambda row: row[1].only_own, "right by the run's alone", whole
    ),
    Column(
        "only_other_rule",
        _DISAGREE,
        lambda row: row[1].only_other,
        "right by the other alone",
        whole,
    ),
    Column("unjudged", "", lambda row: row[1].unjudged),
    Column("", _DISAGREE, lambda row: row[1].disagreement, "disagree", percent),
    Column("drift", "", lambda row: row[1].disagreement - row[2].disagreement),
    Column(
        "",
        "this share minus the source's",
        lambda row: points(row[1].disagreement - row[2].disagreement) if row[0] else "",
        "drift (points)",
    ),
)


def agreements(inputs: ReportInputs) -> tuple[Agreement, dict[str, Agreement]]:
    """The source's, and every condition's."""
    found = inputs.other_rule
    assert found is not None
    by_condition = {
        name: _agreement(
            np.concatenate([arm.statuses for arm in inputs.of(name)]),
            np.concatenate([found.arms[arm.arm.name] for arm in inputs.of(name)]),
        )
        for name in inputs.conditions
    }
    return _agreement(inputs.audit.greedy, found.source), by_condition


def _agreement(own_codes: NDArray[np.uint8], other_codes: NDArray[np.uint8]) -> Agreement:
    judged = ~(np.isin(own_codes, _UNJUDGED) | np.isin(other_codes, _UNJUDGED))
    own, other = own_codes[judged] == PASS, other_codes[judged] == PASS
    counts = (judged, ~judged, own, other, own & ~other, other & ~own)
    return Agreement(*(int(of.sum()) for of in counts))


@dataclass(frozen=True, slots=True)
class UnderBoth:
    """A contrast with what it is under the other rule."""

    findings: Findings
    contrast: Contrast
    delta: Fraction
    other: Difference


def under_both(inputs: ReportInputs, findings: Findings) -> list[UnderBoth]:
    """Every contrast under both rules.

    The replicates are those of the report's own contrasts: the same seeds and problems.
    """
    found = inputs.other_rule
    assert found is not None
    names, statistics = inputs.conditions, inputs.recipe["statistics"]
    passed = np.array(
        [[found.arms[arm.arm.name] == PASS for arm in inputs.of(name)] for name in names]
    )
    source = found.source == PASS
    replicates = replicate(
        passed,
        source,
        item_ids=inputs.audit.ids,
        seeds=np.array(inputs.seeds, dtype=np.int64),
        replicates=statistics["replicates"],
        stream=Stream(statistics["seed"], "report/bootstrap"),
    )
    mean = {
        name: Fraction(int(of.sum()), int(of.size)) for name, of in zip(names, passed, strict=True)
    }
    mean[SOURCE] = Fraction(int(source.sum()), len(source))
    at = {name: number for number, name in enumerate(names)}
    return [
        UnderBoth(
            findings,
            of,
            mean[of.a] - mean[of.b],
            replicates.gain(at[of.a])
            if of.b == SOURCE
            else replicates.contrast(at[of.a], at[of.b]),
        )
        for of in findings.contrasts
    ]


def _contrast_table(inputs: ReportInputs, findings: Findings) -> Iterator[Block]:
    first = principal(findings)
    rows = [row for row in under_both(inputs, findings) if row.contrast in first]
    note = (
        "In percentage points of Pass@1, with the same replicates under both rules. What a rule "
        "could not judge is not passed here."
    )
    if rows:
        yield Frame(CONTRASTS, rows).table(note)


CONTRASTS: tuple[Column[UnderBoth], ...] = (
    Column("a", "", lambda row: row.contrast.a),
    Column("b", "", lambda row: row.contrast.b),
    Column("", _MODEL, lambda row: contrast_name(row.findings, row.contrast), "contrast"),
    Column("run_rule", _RULES, lambda row: row.contrast.delta, "run's rule", points),
    Column("", _MODEL, lambda row: row.contrast.interval, "95% interval", points_interval),
    Column("other_rule", _RULES, lambda row: row.delta, "other rule", points),
    Column("other_rule_ci95", "", lambda row: (row.other.interval.low, row.other.interval.high)),
    Column("", _MODEL, lambda row: row.other.interval, "95% interval", points_interval),
)


def _invalid(inputs: ReportInputs) -> Iterator[Block]:
    """How many responses have no answer by the run's rule, and open with the right one."""
    counts = invalid_counts(inputs)
    if not counts:
        return
    found = inputs.other_rule
    assert found is not None
    rows = [
        Invalid(name, responses, invalid, right if found.opens else None)
        for name, (responses, invalid, right) in counts.items()
    ]
    note = (
        "Invalid: the run's rule reads no answer in the response, so it counts as wrong whatever "
        "it says. Of these, those that open with the right letter are wrong by their form alone."
    )
    yield Frame(INVALID, rows).table(note)


@dataclass(frozen=True, slots=True)
class Invalid:
    """A model's greedy responses without an answer; ``right`` open with the right one."""

    name: str
    responses: int
    invalid: int
    right: int | None


_OF_RESPONSES = "greedy responses, those without an answer by the run's rule"
_OPEN = "invalid ones that do, and their share"
INVALID: tuple[Column[Invalid], ...] = (
    Column("", _MODEL, lambda row: _model_name(row.name), "model"),
    Column("", _OF_RESPONSES, lambda row: row.responses, "responses", whole),
    Column("", _OF_RESPONSES, lambda row: row.invalid, "invalid", whole),
    Column("", _OF_RESPONSES, lambda row: Fraction(row.invalid, row.responses), "share", percent),
    Column(
        "",
        _OPEN,
        lambda row: row.right,
        "open with the right letter",
        lambda right: "–" if right is None else whole(right),
    ),
    Column(
        "",
        _OPEN,
        lambda row: (
            None if row.right is None or not row.invalid else Fraction(row.right, row.invalid)
        ),
        "of the invalid",
        percent,
    ),
)


def _model_name(name: str) -> str:
    return condition_name(name) if name else "source, greedy"


def invalid_counts(inputs: ReportInputs) -> dict[str, tuple[int, int, int]]:
    """Of the source (an empty name) and each condition: responses, invalid ones, right openings."""
    found = inputs.other_rule
    assert found is not None
    if not found.read:
        return {}
    of_arms = {
        name: np.concatenate([found.read[arm.arm.name] for arm in inputs.of(name)])
        for name in inputs.conditions
    }
    return {
        name: (len(of), int((of != VALID).sum()), int((of == OPENS_RIGHT).sum()))
        for name, of in {"": found.read[""], **of_arms}.items()
    }


def _untold(inputs: ReportInputs) -> str:
    """Why nothing is told; empty: it is."""
    found = inputs.other_rule
    assert found is not None
    if found.why:
        return found.why
    source, conditions = agreements(inputs)
    if all(of.responses for of in (source, *conditions.values())):
        return ""
    return f"of some model no response was judged by both the run's rule and {found.name}"


def blocks(inputs: ReportInputs, findings: Findings) -> list[Block]:
    """The section: tables, and a sentence on the lead condition; or a line on why there is none.

    Args:
        inputs: the run, with the other rule.
        findings: of the report.
    """
    found = inputs.other_rule
    assert found is not None
    if why := _untold(inputs):
        return [Text(f"Not told: {why}.", "note")]
    source, conditions = agreements(inputs)
    rule = named(inputs.task["verifier"], inputs.task.get("verifier_params", {}))
    other = named(found.name, found.params)
    models = {"": source, **conditions}
    rows = [(name, model, source) for name, model in models.items()]
    kind = "more" if found.permissive else "fewer"
    note = (
        f"Greedy responses to the audit, of a condition all seeds together. Run's rule: {rule}; "
        f"the other, {other}, takes {kind} forms of answers. Drift: by how many points more of its "
        "responses the rules disagree than of the source's."
    )
    if any(of.unjudged for of in models.values()):
        counts = ", ".join(
            f"{_model_name(name)} {whole(model.unjudged)}" for name, model in models.items()
        )
        note += f" Left out, as a rule gave an error or ran out of time: {counts}."
    return [
        *_sentence(source, conditions, findings.lead),
        Frame(AGREEMENT, rows).table(note),
        *(_contrast_table(inputs, findings) if conditions else ()),
        *_invalid(inputs),
    ]


def _sentence(source: Agreement, conditions: Mapping[str, Agreement], lead: str) -> Iterator[Block]:
    if lead not in conditions:
        return
    of = conditions[lead]
    own = of.share(of.own) - source.share(source.own)
    other = of.share(of.other) - source.share(source.other)
    said = (
        f"{condition_name(lead)} is {points(own)} points from the source under the run's rule, and "
        f"{points(other)} under the other."
    )
    if of.unjudged or source.unjudged:
        yield Text(f"{said} Responses that a rule could not judge are left out of both.")
    elif own == other:
        yield Text(f"{said} The change is the same under both.")
    else:
        yield Text(
            f"{said} The {points(own - other)} points between these two rest on the form of "
            "answers that a rule takes."
        )


def named(name: str, params: Mapping[str, Any]) -> str:
    """A verifier with its parameters."""
    told = ", ".join(f"{key}: {value}" for key, value in params.items())
    return f"{name} ({told})" if told else name


def content(inputs: ReportInputs, findings: Findings) -> dict[str, Any]:
    """What results.json says of it."""
    found = inputs.other_rule
    assert found is not None
    if why := _untold(inputs):
        return {"none": why}
    source, conditions = agreements(inputs)

    counts, opens = invalid_counts(inputs), found.opens

    def told(agreement: Agreement, name: str) -> dict[str, Any]:
        _, invalid, right = counts.get(name, (0, None, None))
        return {
            **Frame(AGREEMENT, [(name, agreement, source)]).entries()[0],
            "invalid": invalid,
            "invalid_opening_right": right if opens else None,
        }

    return {
        "verifier": found.name,
        "params": dict(found.params),
        "permissive": found.permissive,
        "source": told(source, ""),
        "conditions": {name: told(of, name) for name, of in conditions.items()},
        "contrasts": Frame(CONTRASTS, under_both(inputs, findings) if conditions else []).entries(),
    }
