"""The gate of a comparison, as text, in results.json and as JUnit XML."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal
from xml.etree import ElementTree

from gapft_harness.compare.comparison import Comparison, GateCheck
from gapft_harness.compare.number_format import choose_format
from gapft_harness.compare.policy import GateVerdict, find_worst
from gapft_harness.core.files import replace_file
from gapft_harness.core.text import replace_text_surrogates
from gapft_harness.presentation.visible import make_visible
from gapft_harness.report.frame import Column, Frame
from gapft_harness.report.rendering.blocks import Block, Text
from gapft_harness.report.rendering.wording import format_count


def find_verdict(comparison: Comparison) -> GateVerdict | None:
    """Find the verdict of the gate; None without a policy."""
    verdicts = [check.decision.verdict for check in comparison.checks]
    return find_worst(verdicts) if verdicts else None


def describe_check(check: GateCheck, unit: str) -> str:
    """Format the verdict on a model, and how many more documents would decide.

    Args:
        check: the check.
        unit: ``document`` or ``cluster``.
    """
    rule, decision = check.rule, check.decision
    subject = check.model if not check.task else f"{check.model} on {_name_rule(check)}"
    block, warn = (f"{margin or 0:g}" for margin in (rule.block, rule.warn))
    match decision.verdict:
        case "BLOCK":
            text = f"{subject} is worse than before by more than {block}."
        case "INCONCLUSIVE":
            text = f"undecided whether {subject} is worse than before by more than {block}."
        case "PASS":
            text = f"{subject} is not worse than before by more than {rule.margins[0]:g}."
        case "WARN":
            verb = "is" if decision.undecided is None else "may be"
            text = f"{subject} {verb} worse than before by more than {warn}"
            text += f", but not by more than {block}." if rule.block is not None else "."
    if decision.undecided is None:
        return f"{decision.verdict}: {text}"
    if decision.factor is None:
        remedy = f"no number of {unit}s would decide this"
    elif check.more_units is None:
        remedy = f"about {decision.factor:.2g} times as many seeds and {unit}s would decide this"
    else:
        remedy = (
            f"about {format_count(check.more_units)} more {unit}s (now "
            f"{format_count(check.pair.units)}) would decide this"
        )
    return f"{decision.verdict}: {text} At this difference and spread, {remedy} (power 80%)."


def _name_rule(check: GateCheck) -> str:
    """Name the documents of a rule, with its metric if the policy names one."""
    if not check.task:
        return "all documents"
    return f"{check.task} ({check.metric})" if check.rule.task else check.task


def _format_limit(check: GateCheck) -> str:
    """Format the change at which the rule blocks, and in brackets that at which it warns."""
    block, warn = (
        "" if margin is None else choose_format(check.pair.is_binary).change(-check.sign * margin)
        for margin in (check.rule.block, check.rule.warn)
    )
    return f"{block} ({warn})".strip() if warn else block


def _format_more(check: GateCheck) -> str | None:
    """Format how much more data would decide; None if the check is decided."""
    if check.decision.undecided is None:
        return None
    if check.decision.factor is None:
        return "–"
    if check.more_units is None:
        return f"×{check.decision.factor:.2g}"
    return format_count(check.more_units)


GATE: tuple[Column[GateCheck], ...] = (
    Column("model", "AFTER's name", lambda check: check.model, "model"),
    Column("task", "", lambda check: check.task or None),
    Column("metric", "", lambda check: check.metric and check.metric.name),
    Column("filter", "", lambda check: check.metric and check.metric.filter),
    Column("", "the task or group, and the metric, of the policy", _name_rule, "rule"),
    Column("verdict", "of the gate", lambda check: check.decision.verdict, "verdict"),
    Column("block", "", lambda check: check.rule.block),
    Column("warn", "", lambda check: check.rule.warn),
    Column("difference", "", lambda check: check.pair.estimate.value),
    Column("ci95", "", lambda check: check.pair.estimate),
    Column(
        "",
        "after minus before, and its interval",
        lambda check: choose_format(check.pair.is_binary).interval(
            check.pair.estimate, check.pair.units
        ),
        "95% interval",
    ),
    Column(
        "",
        "the differences at which the gate blocks and (in brackets) warns",
        _format_limit,
        "limit",
    ),
    Column("times_as_many", "", lambda check: check.decision.factor),
    Column("more", "", lambda check: check.more_units),
    Column(
        "",
        "further documents or clusters that would decide; ×2: twice as many and twice the seeds; "
        "–: no number would",
        _format_more,
        "more",
        missing="",
    ),
)


def build_gate_blocks(comparison: Comparison) -> list[Block]:
    """Build the section of the gate: a sentence for one check, a table for several."""
    checks = comparison.checks
    verdict = find_worst([check.decision.verdict for check in checks])
    role: Literal["body", "warning"] = "body" if verdict == "PASS" else "warning"
    unchecked = comparison.unchecked_tasks
    blocks: list[Block] = (
        [Text(f"Tasks without a rule: {', '.join(unchecked)}.")] if unchecked else []
    )
    if len(checks) == 1:
        return [Text(describe_check(checks[0], comparison.unit), role), *blocks]
    count = sum(check.decision.verdict == verdict for check in checks)
    has_models = len(comparison.numbers.after) > 1
    has_more = any(check.decision.undecided is not None for check in checks)
    left_out = {*(() if has_models else ("model",)), *(() if has_more else ("more",))}
    columns = [column for column in GATE if column.title not in left_out]
    note = (
        "limit: in brackets, that of a warning. BLOCK: the complete interval is beyond the limit. "
        "INCONCLUSIVE: it contains the limit. WARN: it reaches beyond the limit of a warning."
    )
    if has_more:
        note += f" more: further {comparison.unit}s that would decide (power 80%)."
        if any(check.pair.seeds > 1 for check in checks):
            note += " ×: times as many, and times as many seeds."
    return [
        Text(f"{verdict}: {format_count(count)} of {format_count(len(checks))} checks", role),
        Frame(columns, checks).table(note, words=2 + has_models),
        *blocks,
    ]


def build_gate_entry(comparison: Comparison) -> dict[str, Any] | None:
    """Build the gate's entry of results.json; None without a policy."""
    if not comparison.checks:
        return None
    return {
        "verdict": find_verdict(comparison),
        "unit": comparison.unit,
        "checks": Frame(GATE, comparison.checks).entries(),
    }


def write_junit(comparison: Comparison, path: Path) -> None:
    """Write the checks as test cases: BLOCK is a failure, INCONCLUSIVE an error.

    Raises:
        GapftError: the file cannot be written.
    """
    verdicts = [check.decision.verdict for check in comparison.checks]
    suite = ElementTree.Element(
        "testsuite",
        name="gapft compare",
        tests=str(len(verdicts)),
        failures=str(verdicts.count("BLOCK")),
        errors=str(verdicts.count("INCONCLUSIVE")),
        skipped="0",
    )
    for check in comparison.checks:
        case = ElementTree.SubElement(
            suite, "testcase", classname=_clean(check.model), name=_clean(_name_rule(check))
        )
        text = _clean(describe_check(check, comparison.unit))
        kinds = {"BLOCK": "failure", "INCONCLUSIVE": "error"}
        if kind := kinds.get(check.decision.verdict):
            ElementTree.SubElement(case, kind, type=check.decision.verdict, message=text)
        else:
            ElementTree.SubElement(case, "system-out").text = text
    ElementTree.indent(suite)
    content = ElementTree.tostring(suite, encoding="utf-8", xml_declaration=True)
    replace_file(path, lambda temporary: temporary.write_bytes(content))


def _clean(text: str) -> str:
    """Replace characters that XML cannot contain."""
    return make_visible(replace_text_surrogates(text))
