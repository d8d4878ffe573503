"""Logs of Inspect, read by Inspect's own reader: a sample for each epoch of each problem."""

from __future__ import annotations

import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from gapft_harness.core.errors import UserError, did_you_mean
from gapft_harness.core.records import CONTEXT, GREEDY, Verdict
from gapft_harness.core.text import whole_text
from gapft_harness.importing.rows import ImportChoice, ImportedResponse, Key, verdict_of
from gapft_harness.verdicts.places import Log
from gapft_harness.verdicts.sample_logs import LogRow

if TYPE_CHECKING:
    from inspect_ai.log import EvalSample

#: Inspect's letters for right and wrong.
_LETTERS = {"C": 1, "I": 0}
_STOPPED = {"stop": "stop", "max_tokens": "length", "model_length": "length"}


def read_inspect(path: Path, choice: ImportChoice, greedy: bool) -> Iterator[ImportedResponse]:
    """Yields the responses of a log, one in memory at a time.

    Raises:
        UserError: inspect_ai is not installed, the log is damaged or not complete, or a sample
            does not tell whether it passed; it names file, sample and epoch.
    """
    for number, place, sample in _samples(path):
        yield _row(sample, number, place, choice, greedy)


def inspect_rows(log: Log) -> Iterator[LogRow]:
    """Yields a row for each sample; its metrics are its scores, and later epochs have a filter.

    Raises:
        UserError: as ``read_inspect``.
    """
    by_document = ImportChoice([], judge=True, on=[("id", "id")])
    for number, place, sample in _samples(log.path):
        told = {name: _verdict(sample, name, place)[0] for name in sample.scores or {}}
        row = _row(sample, number, place, by_document, False)
        document = row.key[1]
        yield LogRow.of(
            *(log, number, document, [row.text]),
            metrics={name: verdict.passed for name, verdict in told.items() if verdict},
            filter="none" if sample.epoch == 1 else f"epoch {sample.epoch}",
            target=sample.target,
            arguments={"gen_args_0": {"arg_0": document["input"]}},
        )


def _samples(path: Path) -> Iterator[tuple[int, str, EvalSample]]:
    """Each sample with its number from 1 and its place, one in memory at a time."""
    try:
        from inspect_ai.log import read_eval_log_samples
    except ImportError as error:
        raise UserError(
            f"{path}: a log of Inspect, and the package inspect-ai is not installed; pip install "
            f"'gapft-harness[inspect]' ({error})"
        ) from error
    try:
        for number, sample in enumerate(read_eval_log_samples(str(path)), 1):
            yield number, f"{path}, sample {sample.id}, epoch {sample.epoch}", sample
    except (OSError, RuntimeError, ValueError, KeyError, zipfile.BadZipFile) as error:
        raise UserError(
            f"{path}: Inspect cannot read it as a whole log: {' '.join(str(error).split())}"
        ) from error


def _row(
    sample: EvalSample, number: int, place: str, choice: ImportChoice, greedy: bool
) -> ImportedResponse:
    if sample.error is not None:
        raise UserError(f"{place}: ended in an error; expected a response (inspect eval-retry)")
    verdict, by = (None, "") if choice.judge else _verdict(sample, choice.metric, place)
    rule = {"score": by.removeprefix("score ")}
    text = whole_text(sample.output.completion)
    stopped = str(sample.output.stop_reason)
    # as gapft export writes what was not generated
    finish = CONTEXT if stopped == "model_length" and not text else _STOPPED.get(stopped, "unknown")
    index = GREEDY if greedy else sample.epoch - 1
    return ImportedResponse(
        number, place, _key(sample, choice, place), index, text, verdict, by, finish, rule
    )


def _key(sample: EvalSample, choice: ImportChoice, place: str) -> Key:
    asked = sample.input
    if not isinstance(asked, str):
        users = [message.text for message in asked if message.role == "user"]
        if len(users) != 1:
            raise UserError(f"{place}: {len(users)} turns of the user; expected one, the prompt")
        (asked,) = users
    if not choice.on:
        return "prompt", asked
    own = {"id": sample.id, "input": asked, "target": sample.target}
    return "doc", {**sample.metadata, **own}


def _verdict(sample: EvalSample, metric: str | None, place: str) -> tuple[Verdict | None, str]:
    scores = sample.scores or {}
    if metric is None and len(scores) > 1:
        raise UserError(f"{place}: scores of {', '.join(scores)}; say whose counts: --metric NAME")
    name = metric or next(iter(scores), None)
    if name is None:
        return None, ""
    if name not in scores:
        raise UserError(f"{place}: no score {name!r}; {did_you_mean(name, scores)}")
    value = scores[name].value
    if isinstance(value, str):
        value = _LETTERS.get(value, value)
    return verdict_of(value, f"score {name}", place), f"score {name}"
