"""Verdicts and settings: the last sections, with data, warnings, and how to reproduce the run."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from gapft_harness.core.records import CONTEXT, FINISH_REASONS, STOP_STRING
from gapft_harness.report.findings.whole import ConditionFindings, Findings
from gapft_harness.report.frame import Column, Frame
from gapft_harness.report.reading.endings import Endings
from gapft_harness.report.reading.inputs import STATUSES, ReportInputs
from gapft_harness.report.rendering import wording
from gapft_harness.report.rendering.blocks import Block, Bullets, Code, Section, Text
from gapft_harness.report.rendering.wording import duration

#: The title of the section that lists every warning.
DATA = "Data and warnings"


def sections(inputs: ReportInputs, findings: Findings) -> list[Section]:
    """Build the sections on verdicts, data and warnings, settings, and reproduction."""
    return [
        Section("Verdicts", _verdicts(inputs, findings)),
        Section(DATA, _data(inputs)),
        Section("Settings", _settings(inputs)),
        Section("Reproduce", _reproduce(inputs)),
    ]


def flat(content: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    """Yield ``section.key`` and its value as text, in order; lists and empty maps as JSON."""
    for key, value in content.items():
        if isinstance(value, Mapping) and value:
            yield from flat(value, f"{prefix}{key}.")
        else:
            shown = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
            yield f"{prefix}{key}", shown


def _data(inputs: ReportInputs) -> list[Block]:
    task = inputs.task
    dropped = list(task.get("dropped", ()))
    judge = inputs.judged_by.get("audit", {}).get("judge")
    verifier = f"{task.get('verifier')} ({judge})" if judge else task.get("verifier")
    if inputs.taken:
        verifier = f"{verifier} (except {' and '.join(inputs.taken)}: verdicts of imported files)"
    blocks: list[Block] = [
        Text(
            f"Task {task['name']}, version {task.get('version')}, verified by "
            f"{verifier}. The {task.get('keep')} rule keeps one verified sample of each recovered "
            "problem."
        )
    ]
    blocks.append(Bullets(dropped) if dropped else Text("No record was dropped."))
    blocks += [Text(warning, "warning") for warning in inputs.warnings]
    if not inputs.warnings:
        blocks.append(Text("No stage reported a warning."))
    return blocks


def _settings(inputs: ReportInputs) -> list[Block]:
    prose = ("description", "notes")
    recipe = {key: value for key, value in inputs.recipe.items() if key not in prose}
    rows = [*flat(recipe)]
    rows += [(f"task.{key}", value) for key, value in flat(inputs.task) if key != "dropped"]
    rows += [(f"source.{key}", value) for key, value in flat(inputs.source)]
    rows += [(f"judged_by.{key}", value) for key, value in flat(inputs.judged_by)]
    return [Frame(SETTINGS, rows).table(words=2, summary=f"All {len(rows)} settings")]


_SETTING = "a key of the [recipe](recipe-keys.md#keys), and its value"
SETTINGS: tuple[Column[tuple[str, str]], ...] = (
    Column("", _SETTING, lambda row: row[0], "key"),
    Column("", _SETTING, lambda row: row[1], "value"),
)
_WALL = "including startup and waiting"
STAGES: tuple[Column[tuple[str, float]], ...] = (
    Column("", _WALL, lambda row: row[0], "stage"),
    Column("", _WALL, lambda row: row[1], "wall time", duration),
)
_RAN = "packages that made the run"
VERSIONS: tuple[Column[tuple[str, str]], ...] = (
    Column("", _RAN, lambda row: row[0], "package"),
    Column("", _RAN, lambda row: row[1], "version"),
)


def _reproduce(inputs: ReportInputs) -> list[Block]:
    blocks: list[Block] = [
        Text(
            "The run's folder contains the resolved recipe, every response with its exact token "
            "ids, the selections, the adapters, and the hashes of all of them (manifest.json). "
            "Run these commands in that folder to run everything again in a new folder, or to "
            "write this report again:"
        ),
        Code("gapft run recipe.yaml --run-dir NEW_FOLDER\ngapft run . --only report"),
    ]
    if inputs.seconds:
        blocks.append(Frame(STAGES, [*inputs.seconds.items()]).table())
    if inputs.versions:
        blocks.append(Frame(VERSIONS, [*inputs.versions.items()]).table())
    return blocks


def _summed(condition: ConditionFindings) -> dict[str, int]:
    """Add the responses by status over all seeds."""
    return {
        status: sum(seed.verdicts[status] for seed in condition.seeds.values())
        for status in STATUSES
    }


def _verdicts(inputs: ReportInputs, findings: Findings) -> list[Block]:
    counts = {"audit, source greedy": findings.source.verdicts}
    for name, condition in findings.conditions.items():
        counts[f"audit, {wording.condition_name(name)}"] = _summed(condition)
    for further in inputs.further:
        if further.of:
            continue
        on = findings.further[further.name]
        counts[f"audit {further.name}, source greedy"] = on.source.verdicts
        for name, condition in on.conditions.items():
            counts[f"audit {further.name}, {wording.condition_name(name)}"] = _summed(condition)
    for of in inputs.parts:
        counts |= of.part.verdicts(inputs, of.read)
    for split in ("pool", "audit"):
        if split in inputs.verdict_counts:
            counts[f"{split}, source greedy and samples"] = inputs.verdict_counts[split]
    return [
        Frame(VERDICTS, [*counts.items()]).table(
            "Only a pass counts as correct. A timeout or an error of the verifier counts as not "
            "passed in every rate; this table separates them from wrong answers."
        ),
        *_endings(inputs),
    ]


def _endings(inputs: ReportInputs) -> list[Block]:
    if not inputs.endings:
        return []
    return [
        Frame(ENDINGS, [*inputs.endings.items()]).table(
            "How responses ended: at an end token of the model (including endings that its backend "
            "does not distinguish from one), at a stop string of the task, or at the token limit. "
            "If many responses were cut and have no answer, change generation_kwargs.until in the "
            "task, or search.max_gen_toks."
        ),
    ]


def endings(inputs: ReportInputs) -> list[dict[str, Any]]:
    """List for results.json how the responses of splits and arms ended."""
    return Frame(ENDINGS, [*inputs.endings.items()]).entries()


def _with(status: str) -> Column[tuple[str, Mapping[str, int]]]:
    meaning = "the number of responses; the last two count as not passed"
    return Column("", meaning, lambda row: row[1].get(status, 0), status, wording.whole)


VERDICTS: tuple[Column[tuple[str, Mapping[str, int]]], ...] = (
    Column("", "the split and model", lambda row: row[0], "responses"),
    *(_with(status) for status in STATUSES),
)

RowEndings = tuple[str, Endings]


def _ended(key: str, title: str, *reasons: str) -> Column[RowEndings]:
    """Build the column of the responses that ended for one of the given reasons."""

    def count(row: RowEndings) -> int:
        return sum(row[1].responses.get(reason, 0) for reason in reasons)

    return Column(key, "the number of responses that ended so", count, title, wording.whole)


def _unanswered(key: str, title: str, *reasons: str) -> Column[RowEndings]:
    """Build the column of the responses among these without an answer."""

    def count(row: RowEndings) -> int | None:
        counts = row[1].unanswered
        return None if counts is None else sum(counts.get(reason, 0) for reason in reasons)

    meaning = (
        "responses without an answer (cut: at a stop string or the limit); a dash: the verifier "
        "does not read answers"
    )
    return Column(key, meaning, count, title, wording.whole)


ENDINGS: tuple[Column[RowEndings], ...] = (
    Column("of", "the split and model", lambda row: row[0], "responses of"),
    _ended("end_token", "end token", "stop"),
    _ended("stop_string", "stop string", STOP_STRING),
    _ended("limit", "token limit", "length"),
    _ended("unknown", "not known", "unknown"),
    _ended("not_generated", "not generated", CONTEXT),
    _unanswered("cut_unanswered", "cut, no answer", STOP_STRING, "length"),
    _unanswered("unanswered", "no answer", *FINISH_REASONS),
)
