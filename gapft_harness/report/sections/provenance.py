"""Verdicts and settings: the last sections, with data, warnings, and how to reproduce the run."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from fractions import Fraction
from typing import Any

from gapft_harness.core.records import CONTEXT_EXCEEDED, FINISH_REASONS, STOP_STRING
from gapft_harness.report.findings.computation import ConditionFindings, Findings
from gapft_harness.report.frame import Column, Frame
from gapft_harness.report.reading.endings import EndingCounts
from gapft_harness.report.reading.inputs import STATUSES, ReportInputs
from gapft_harness.report.rendering import wording
from gapft_harness.report.rendering.blocks import Block, Bullets, Code, Section, Text
from gapft_harness.report.rendering.wording import format_duration

#: The title of the section that lists every warning.
DATA = "Data and warnings"


def build_sections(inputs: ReportInputs, findings: Findings) -> list[Section]:
    """Build the sections on verdicts, data and warnings, settings, and reproduction."""
    return [
        Section("Verdicts", _build_verdicts(inputs, findings)),
        Section(DATA, _build_data(inputs)),
        Section("Settings", _build_settings(inputs)),
        Section("Reproduce", _build_reproduce(inputs)),
    ]


def flatten(content: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    """Yield ``section.key`` and its value as text, in order; lists and empty maps as JSON."""
    for key, value in content.items():
        if isinstance(value, Mapping) and value:
            yield from flatten(value, f"{prefix}{key}.")
        else:
            text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
            yield f"{prefix}{key}", text


def _build_data(inputs: ReportInputs) -> list[Block]:
    task = inputs.task
    dropped = list(task.get("dropped", ()))
    judge = inputs.judged_by.get("audit", {}).get("judge")
    verifier = f"{task.get('verifier')} ({judge})" if judge else task.get("verifier")
    if inputs.splits_with_imported_verdicts:
        splits = " and ".join(inputs.splits_with_imported_verdicts)
        verifier = f"{verifier} (except {splits}: verdicts of logs)"
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


def _build_settings(inputs: ReportInputs) -> list[Block]:
    prose = ("description", "notes")
    recipe = {key: value for key, value in inputs.recipe.items() if key not in prose}
    rows = [*flatten(recipe)]
    rows += [(f"task.{key}", value) for key, value in flatten(inputs.task) if key != "dropped"]
    rows += [(f"source.{key}", value) for key, value in flatten(inputs.source)]
    rows += [(f"judged_by.{key}", value) for key, value in flatten(inputs.judged_by)]
    return [Frame(SETTINGS, rows).table(words=2, summary=f"All {len(rows)} settings")]


_SETTING = "a key of the [recipe](recipe-keys.md#keys), and its value"
SETTINGS: tuple[Column[tuple[str, str]], ...] = (
    Column("", _SETTING, lambda row: row[0], "key"),
    Column("", _SETTING, lambda row: row[1], "value"),
)
_WALL_TIME = "including startup and waiting"
STAGES: tuple[Column[tuple[str, float]], ...] = (
    Column("", _WALL_TIME, lambda row: row[0], "stage"),
    Column("", _WALL_TIME, lambda row: row[1], "wall time", format_duration),
)
_PACKAGE = "packages that made the run"
VERSIONS: tuple[Column[tuple[str, str]], ...] = (
    Column("", _PACKAGE, lambda row: row[0], "package"),
    Column("", _PACKAGE, lambda row: row[1], "version"),
)


def _build_reproduce(inputs: ReportInputs) -> list[Block]:
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


def _sum_verdicts(condition: ConditionFindings) -> dict[str, int]:
    """Add the responses by status over all seeds."""
    return {
        status: sum(seed.verdicts[status] for seed in condition.seeds.values())
        for status in STATUSES
    }


def _build_verdicts(inputs: ReportInputs, findings: Findings) -> list[Block]:
    source = "source" if inputs.deployment else "source greedy"
    counts = {f"audit, {source}": findings.source.verdicts}
    for name, condition in findings.conditions.items():
        counts[f"audit, {wording.condition_name(name)}"] = _sum_verdicts(condition)
    for loaded in inputs.parts:
        counts |= loaded.part.verdicts(inputs, loaded.data)
    for split in ("pool", "audit"):
        if split in inputs.verdict_counts:
            counts[f"{split}, {source} and samples"] = inputs.verdict_counts[split]
    return [
        Frame(VERDICTS, [*counts.items()]).table(
            "Only a pass counts as correct. A timeout or an error of the verifier counts as not "
            "passed in every rate; this table separates them from wrong answers."
        ),
        *_build_endings(inputs),
    ]


def _build_endings(inputs: ReportInputs) -> list[Block]:
    if not inputs.endings:
        return []
    return [
        Frame(ENDINGS, [*inputs.endings.items()]).table(
            "How responses ended: at an end token of the model (including endings that its backend "
            "does not distinguish from one), at a stop string of the task, or at the token limit. "
            "Source: the deployment decodes of the audit. "
            "If many responses were cut and have no answer, change generation_kwargs.until in the "
            "task, or search.max_gen_toks."
        ),
    ]


def list_endings(inputs: ReportInputs) -> list[dict[str, Any]]:
    """List for results.json how the responses of splits and arms ended."""
    return Frame(ENDINGS, [*inputs.endings.items()]).entries()


def _build_status_column(status: str) -> Column[tuple[str, Mapping[str, int]]]:
    meaning = "the number of responses; the last two count as not passed"
    return Column("", meaning, lambda row: row[1].get(status, 0), status, wording.format_count)


VERDICTS: tuple[Column[tuple[str, Mapping[str, int]]], ...] = (
    Column("", "the split and model", lambda row: row[0], "responses"),
    *(_build_status_column(status) for status in STATUSES),
)

RowEndings = tuple[str, EndingCounts]


def _build_ended_column(key: str, title: str, *reasons: str) -> Column[RowEndings]:
    """Build the column of the responses that ended for one of the given reasons."""

    def count(row: RowEndings) -> int:
        return sum(row[1].responses.get(reason, 0) for reason in reasons)

    return Column(key, "the number of responses that ended so", count, title, wording.format_count)


def _build_unanswered_column(key: str, title: str, *reasons: str) -> Column[RowEndings]:
    """Build the column of the responses among these without an answer."""

    def count(row: RowEndings) -> int | None:
        counts = row[1].unanswered
        return None if counts is None else sum(counts.get(reason, 0) for reason in reasons)

    meaning = (
        "responses without an answer (cut: at a stop string or the limit); a dash: the verifier "
        "does not read answers"
    )
    return Column(key, meaning, count, title, wording.format_count)


def _compute_limit_share(row: RowEndings) -> Fraction:
    return Fraction(row[1].responses.get("length", 0), sum(row[1].responses.values()))


ENDINGS: tuple[Column[RowEndings], ...] = (
    Column("of", "the split and model", lambda row: row[0], "responses of"),
    _build_ended_column("end_token", "end token", "stop"),
    _build_ended_column("stop_string", "stop string", STOP_STRING),
    _build_ended_column("limit", "token limit", "length"),
    Column("limit_share", "of the responses", _compute_limit_share, "at limit", wording.percent),
    _build_ended_column("unknown", "not known", "unknown"),
    _build_ended_column("not_generated", "not generated", CONTEXT_EXCEEDED),
    _build_unanswered_column("cut_unanswered", "cut, no answer", STOP_STRING, "length"),
    _build_unanswered_column("unanswered", "no answer", *FINISH_REASONS),
)
