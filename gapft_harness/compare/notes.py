"""What makes a comparison doubtful, and how its numbers were chosen."""

from __future__ import annotations

import filecmp
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from gapft_harness.analysis.decomposition import STABLE_ITEMS
from gapft_harness.compare.comparison import Comparison, Selected
from gapft_harness.compare.judging import JudgedLog
from gapft_harness.core.errors import quote_unprintable
from gapft_harness.outcomes.formats import LM_EVAL
from gapft_harness.outcomes.table import Outcomes

#: Arguments of a model that name it; they differ between models.
_MODEL_NAMES = ("pretrained", "peft", "delta", "tokenizer", "model", "path")

_NO_DIRECTION = (
    "The logs do not record whether higher is better, so it is assumed; if lower is better, add "
    "--lower-is-better."
)
_NO_VERSION = (
    "A log has no results file of lm_eval beside it, so the task's versions may differ unnoticed."
)


def list_warnings(comparison: Comparison) -> Iterator[str]:
    """Yield what may explain a difference besides the model, or makes numbers doubtful."""
    for warn in (_warn_scoring, _warn_same_logs, _warn_settings, _warn_filters, _warn_inputs):
        for model, runs in comparison.after.items():
            yield from (f"{model}: {warning}" for warning in warn(comparison, runs))
    for name, outcomes in _list_outcomes(comparison):
        if count := sum(outcomes.unscored.values()):
            yield (
                f"{name}: {count:,} of {len(outcomes.values):,} documents are left out, because "
                "they have null or NaN as score"
            )
        judged = [log for log in outcomes.logs if isinstance(log, JudgedLog)]
        if count := sum(log.unjudged for log in judged):
            total = sum(len(log.passed) for log in judged)
            yield (
                f"{name}: {count:,} of {total:,} responses could not be judged by "
                f"{judged[0].verifier} (error or timeout) and count as wrong"
            )
    if 1 < comparison.units < STABLE_ITEMS:
        yield (
            f"{comparison.units} {comparison.unit}s, fewer than {STABLE_ITEMS}: the intervals are "
            "likely too narrow"
        )
    if comparison.copies:
        yield comparison.copies


def list_notes(comparison: Comparison) -> Iterator[str]:
    """Yield how logs were joined and numbers chosen."""
    yield from comparison.remarks
    for name, outcomes in _list_outcomes(comparison):
        tasks = [log.task for log in outcomes.logs]
        for task in dict.fromkeys(tasks):
            if (count := tasks.count(task)) > 1:
                yield (
                    f"{name}: {count} logs of {task} with equal settings and different documents "
                    "are joined as parts of one evaluation."
                )
        if count := sum(outcomes.unmeasured.values()):
            yield (
                f"{name}: {count:,} of {len(outcomes.values):,} documents are left out, because "
                "the metric does not apply to them."
            )
    if left_out := comparison.joined.left_out:
        yield f"Documents that are left out, because they are not in all logs: {left_out:,}."
    if repeated := comparison.joined.repeated:
        yield f"Documents with equal content, paired by doc_id too: {repeated:,}."
    if None in comparison.directions.values():
        yield _NO_DIRECTION
    logs = [log for _, outcomes in _list_outcomes(comparison) for log in outcomes.logs]
    if any(log.kind == LM_EVAL and log.version is None for log in logs):
        yield _NO_VERSION


def _list_outcomes(comparison: Comparison) -> Iterator[tuple[str, Outcomes]]:
    yield "before", comparison.before
    for model, runs in comparison.after.items():
        yield from ((model, outcomes) for outcomes, _ in runs)


def _warn_scoring(comparison: Comparison, runs: list[Selected]) -> Iterator[str]:
    """Warn about equal responses with different scores."""
    before = comparison.before
    documents_before = comparison.joined.before
    texts_before = before.find_only_texts()[documents_before]
    golds_before = _get_hashes(before.golds, documents_before)
    count = 0
    for outcomes, documents in runs:
        same = (texts_before != 0) & (texts_before == outcomes.find_only_texts()[documents])
        same &= golds_before == _get_hashes(outcomes.golds, documents)
        count += int((same & (outcomes.values[documents] != comparison.numbers.before)).sum())
    if count:
        yield (
            f"{count:,} responses are the same text as before but have another score: the scoring "
            "changed, not the model"
        )


def _warn_same_logs(comparison: Comparison, runs: list[Selected]) -> Iterator[str]:
    """Warn about logs that are those before, by path or by content."""
    before = comparison.before
    for outcomes, _ in runs:
        if isinstance(outcomes.logs[0], JudgedLog) != isinstance(before.logs[0], JudgedLog):
            continue  # the log's own verdicts and a verifier's
        pairs = [(log.path, other.path) for log in before.logs for other in outcomes.logs]
        same = [pair for pair in pairs if filecmp.cmp(*pair, shallow=False)]
        if len(same) == len(before.logs):
            path_before, path_after = same[0]
            if path_before.resolve() == path_after.resolve():
                yield f"it is BEFORE compared with itself: {path_after} is the same log"
            else:
                yield f"it has an identical log: {path_after} is a copy of {path_before}"
            return


def _warn_settings(comparison: Comparison, runs: list[Selected]) -> Iterator[str]:
    """Warn about evaluations whose version of lm_eval or model arguments differ."""
    before = comparison.before.logs[0].settings
    differences: dict[str, None] = {}
    for outcomes, _ in runs:
        after = outcomes.logs[0].settings
        for name in sorted({*before, *after} - {*_MODEL_NAMES}) if before and after else ():
            old = before.get(name)
            new = after.get(name)
            if old != new:
                differences[f"{name} {_format_setting(old)} → {_format_setting(new)}"] = None
    if differences:
        yield (
            "evaluated with other settings than before, so the change may not be the model's: "
            f"{', '.join(differences)}"
        )


def _format_setting(value: object) -> str:
    return "not set" if value is None else quote_unprintable(str(value))


def _warn_filters(comparison: Comparison, runs: list[Selected]) -> Iterator[str]:
    """Warn about filters under which the same metric changes in the other direction."""
    if comparison.joined.left_out:
        return  # the sums are those of all documents
    for task, metric in comparison.metrics.items():
        changes: dict[str, tuple[float, float]] = {}
        for name, (count, total) in comparison.before.other_filters.get(task, {}).items():
            sums = [rows.other_filters.get(task, {}).get(name, (0, 0.0)) for rows, _ in runs]
            if count and all(own_count == count for own_count, _ in sums):
                mean = sum(own_total for _, own_total in sums) / (count * len(sums))
                changes[name] = total / count, mean
        low, high = changes.pop(metric.filter, (0.0, 0.0))
        for name, (mean_before, mean) in changes.items():
            if (mean - mean_before) * (high - low) < 0:
                yield (
                    f"{metric.metric} of {task or 'the log'} changes in the other direction under "
                    f"filter {name}: from {mean_before:.4g} to {mean:.4g}, but from {low:.4g} to "
                    f"{high:.4g} under {metric.filter}; the answers' format may have changed, not "
                    "their correctness"
                )


def _warn_inputs(comparison: Comparison, runs: list[Selected]) -> Iterator[str]:
    """Warn about different prompts or gold answers for the same documents."""
    before = comparison.before
    documents_before = comparison.joined.before
    for field, name in (("prompts", "prompt"), ("golds", "gold answer")):
        hashes_before = _get_hashes(getattr(before, field), documents_before)
        changed = np.zeros(len(documents_before), dtype=bool)
        for outcomes, documents in runs:
            if outcomes.logs[0].kind != before.logs[0].kind:
                continue  # each tool writes prompts and gold answers in its own way
            hashes = _get_hashes(getattr(outcomes, field), documents)
            changed |= (hashes_before != hashes) & (hashes_before != 0) & (hashes != 0)
        if changed.any():
            count = f"{changed.sum():,} of {len(changed):,} documents"
            yield f"different {name} than before for {count}"


def _get_hashes(column: object, documents: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return a column of hashes of the compared documents."""
    hashes: NDArray[np.int64] = np.frombuffer(column, dtype=np.int64)[documents]  # type: ignore[call-overload]
    return hashes
