"""The gate of a comparison: rules applied to models, as a section and as JUnit XML."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from xml.etree import ElementTree

from gapft_harness.compare.comparison import Comparison, compare, find_common
from gapft_harness.compare.findings import Paired
from gapft_harness.compare.policy import Decision, GateRule, GateVerdict, decide, find_worst
from gapft_harness.core.errors import UserError, did_you_mean, quote_unprintable
from gapft_harness.core.files import replace_file
from gapft_harness.core.text import replace_text_surrogates
from gapft_harness.outcomes.table import Metric
from gapft_harness.presentation.content import Column, Section, Table, format_value
from gapft_harness.presentation.visible import make_visible

_NOTE = (
    "Block and warn: the largest allowed loss. BLOCK: the complete interval is beyond block. "
    "INCONCLUSIVE: it contains block. WARN: it reaches beyond warn. More: further documents or "
    "clusters that would decide at this difference and spread (power 80%); times: how many times "
    "as much data, with as many times the seeds."
)


@dataclass(frozen=True, slots=True)
class GateCheck:
    """A rule applied to a model.

    Attributes:
        rule: the rule.
        model: the model.
        task: the task or group of tasks; "": all documents.
        metric: the metric; None: several.
        pair: the model's change on these documents.
        decision: what the interval decides.
    """

    rule: GateRule
    model: str
    task: str
    metric: Metric | None
    pair: Paired
    decision: Decision

    @property
    def subject(self) -> str:
        """The documents of the rule, with its metric if the policy names one."""
        if not self.task:
            return "all documents"
        return f"{self.task} ({self.metric})" if self.rule.task else self.task

    @property
    def more_units(self) -> int | None:
        """How many more documents (or clusters) would decide; None if decided or unknown."""
        if self.decision.factor is None or self.pair.seeds > 1:
            return None
        return math.ceil((self.decision.factor - 1) * self.pair.units) or 1


def check_policy(comparison: Comparison, rules: Sequence[GateRule]) -> list[GateCheck]:
    """Check the rules of a policy for each model.

    A rule on a metric that is not compared is checked in a comparison of its own.

    Raises:
        UserError: a rule cannot be checked.
    """
    checks: list[GateCheck] = []
    for rule in rules:
        part = comparison
        try:
            if not _has_metric(comparison, rule):
                pairs = {task.partition("=")[0]: task for task in comparison.options.tasks}
                options = replace(
                    comparison.options,
                    tasks=[pairs.get(task, task) for task in _list_tasks(comparison, rule.task)],
                    metric=rule.metric,
                    filter=comparison.options.filter if rule.filter is None else rule.filter,
                    by=None,
                    source_samples=(),
                )
                part = compare(*comparison.arguments, options)
            checks += _check_rule(part, rule)
        except UserError as error:
            raise error.with_place(rule.place) from error
    return checks


def find_verdict(checks: Sequence[GateCheck]) -> GateVerdict | None:
    """Find the verdict of the gate; None without checks."""
    verdicts = [check.decision.verdict for check in checks]
    return find_worst(verdicts) if verdicts else None


def describe_check(check: GateCheck, unit: str) -> str:
    """Describe the verdict on a model, and how much more data would decide.

    Args:
        check: the check.
        unit: ``document`` or ``cluster``.
    """
    decision = check.decision
    difference = format_value(check.pair.estimate, "points" if check.pair.is_binary else "change")
    text = (
        f"{decision.verdict}: {check.model}, {check.subject}: difference {difference}; "
        f"{check.rule.margins}."
    )
    if decision.undecided is None:
        return text
    more = f"about {check.more_units:,} more {unit}s" if check.more_units else None
    if decision.factor is None:
        more = f"no number of {unit}s"
    elif more is None:
        times = format_value(decision.factor, "number")
        more = f"about {times} times as many seeds and {unit}s"
    return f"{text} At this difference and spread, {more} would decide this (power 80%)."


def _build_table(checks: Sequence[GateCheck]) -> Table:
    are_shares = all(check.pair.is_binary for check in checks)
    has_more = any(check.decision.undecided is not None for check in checks)
    has_seeds = any(check.pair.seeds > 1 for check in checks)
    columns = [
        Column("model", "model"),
        Column("task", "task"),
        Column("metric", "metric"),
        Column("verdict", "verdict"),
        Column(
            "difference",
            "difference (points)" if are_shares else "difference",
            "points" if are_shares else "change",
        ),
        Column("block", "block", "number"),
        Column("warn", "warn", "number"),
        Column("more", "more" if has_more else None, "count"),
        Column("times_as_many", "times" if has_more and has_seeds else None, "number"),
    ]
    rows = [
        {
            "model": check.model,
            "task": check.task or "all documents",
            "metric": check.metric and str(check.metric),
            "verdict": check.decision.verdict,
            "difference": check.pair.estimate,
            "block": check.rule.margins.block,
            "warn": check.rule.margins.warn,
            "more": check.more_units,
            "times_as_many": check.decision.factor,
        }
        for check in checks
    ]
    return Table("gate", columns, rows, _NOTE)


def build_gate_section(comparison: Comparison, checks: Sequence[GateCheck]) -> Section:
    """Build the section of the gate, with a warning for each check that did not pass."""
    verdict = find_verdict(checks)
    count = sum(check.decision.verdict == verdict for check in checks)
    warnings = [
        describe_check(check, comparison.unit)
        for check in checks
        if check.decision.verdict != "PASS"
    ]
    text = [f"{verdict}: {count:,} of {len(checks):,} checks."]
    if unchecked := _list_unchecked(comparison, checks):
        text.append(f"Tasks without a rule: {', '.join(unchecked)}.")
    return Section("Gate", text, [_build_table(checks)], warnings=warnings)


def write_junit(checks: Sequence[GateCheck], unit: str, path: Path) -> None:
    """Write the checks as test cases: BLOCK is a failure, INCONCLUSIVE an error.

    Raises:
        GapftError: the file cannot be written.
    """
    verdicts = [check.decision.verdict for check in checks]
    suite = ElementTree.Element(
        "testsuite",
        name="gapft compare",
        tests=str(len(verdicts)),
        failures=str(verdicts.count("BLOCK")),
        errors=str(verdicts.count("INCONCLUSIVE")),
        skipped="0",
    )
    for check in checks:
        case = ElementTree.SubElement(
            suite, "testcase", classname=_clean(check.model), name=_clean(check.subject)
        )
        text = _clean(describe_check(check, unit))
        kinds = {"BLOCK": "failure", "INCONCLUSIVE": "error"}
        if kind := kinds.get(check.decision.verdict):
            ElementTree.SubElement(case, kind, type=check.decision.verdict, message=text)
        else:
            ElementTree.SubElement(case, "system-out").text = text
    ElementTree.indent(suite)
    content = ElementTree.tostring(suite, encoding="utf-8", xml_declaration=True)
    replace_file(path, lambda temporary: temporary.write_bytes(content))


def _list_tasks(comparison: Comparison, name: str) -> tuple[str, ...]:
    """List the tasks of a task's or group's name; "": all.

    Raises:
        UserError: no compared task or group has the name.
    """
    by_name: dict[str, tuple[str, ...]] = {task: (task,) for task in comparison.metrics}
    by_name |= {aggregate.name: aggregate.tasks for aggregate in comparison.aggregates}
    if not name:
        return tuple(comparison.metrics)
    if name not in by_name:
        raise UserError(f"unknown task {name!r}; {did_you_mean(name, filter(None, by_name))}")
    return by_name[name]


def _list_unchecked(comparison: Comparison, checks: Sequence[GateCheck]) -> list[str]:
    """List the tasks that no rule checks."""
    checked = {task for check in checks for task in _list_tasks(comparison, check.rule.task)}
    return [task for task in comparison.metrics if task not in checked]


def _has_metric(comparison: Comparison, rule: GateRule) -> bool:
    """Return whether a comparison has a row for the task and the metric of a rule."""
    if not rule.task:
        return True
    metrics = [comparison.metrics[task] for task in _list_tasks(comparison, rule.task)]
    has_row = comparison.options.by is None or len(comparison.metrics) == 1
    return has_row and all(
        metric.metric == rule.metric and rule.filter in (None, metric.filter) for metric in metrics
    )


def _check_rule(comparison: Comparison, rule: GateRule) -> Iterator[GateCheck]:
    """Check a rule for each model; without a common mean, all documents are checked by task.

    Raises:
        UserError: there is no interval, or the direction is unknown.
    """
    # Choose what the rule is about: all documents, a task or a group
    tables = {"": comparison.models} if comparison.models else comparison.by_group
    if rule.task:
        by_name = comparison.by_group | comparison.by_aggregate
        rows = comparison.models if len(comparison.metrics) == 1 else by_name.get(rule.task)
        if rows is None:
            raise UserError(
                f"lm_eval's results file has no mean of {rule.metric} for the group; give a margin "
                f"to its tasks: {', '.join(_list_tasks(comparison, rule.task))}"
            )
        tables = {rule.task: rows}
    for name, by_model in tables.items():
        # Refuse margins that mean nothing for these metrics
        tasks = _list_tasks(comparison, name)
        higher_is_better = find_common(comparison.directions[task] for task in tasks)
        is_share = all(pair.is_binary for pair in by_model.values())
        metrics = {quote_unprintable(comparison.metrics[task].name) for task in tasks}
        if higher_is_better is None and not is_share:
            raise UserError(
                f"unknown direction of {', '.join(metrics)}: lm_eval's results file is missing "
                "beside the logs, or has no direction; add --higher-is-better or --lower-is-better"
            )
        if rule.metric and {comparison.metrics[task].metric for task in tasks} != {rule.metric}:
            raise UserError(
                f"found the metric {', '.join(metrics)}, expected {rule.metric!r}: --verifier "
                "compares its own verdicts; give a margin for all documents (overall)"
            )
        if is_share and max(rule.margins.block or 0, rule.margins.warn or 0) >= 1:
            raise UserError(
                f"{', '.join(metrics)} is a share; expected a margin below 1 (one point is 0.01)"
            )
        # Decide for each model
        metric = find_common(comparison.metrics[task] for task in tasks)
        for model, pair in by_model.items():
            if not pair.estimate.has_interval:
                raise UserError(
                    "found one document, expected several: one document has no interval; "
                    "evaluate more documents"
                )
            gain = -pair.estimate if higher_is_better is False else pair.estimate
            decision = decide(rule.margins, float(gain.value), gain.low, gain.high)
            yield GateCheck(rule, model, name, metric, pair, decision)


def _clean(text: str) -> str:
    """Replace characters that XML cannot contain."""
    return make_visible(replace_text_surrogates(text))
