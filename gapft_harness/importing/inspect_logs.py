"""Logs of Inspect, read by Inspect's own reader: a sample for each epoch of each problem.

An epoch is a response to the problem, and a scorer a metric.
"""

from __future__ import annotations

import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gapft_harness.core.errors import UserError, did_you_mean
from gapft_harness.core.records import CONTEXT, GREEDY, Verdict
from gapft_harness.core.text import whole_text
from gapft_harness.importing.rows import ImportChoice, ImportedResponse, Key, verdict_of
from gapft_harness.verdicts.places import Log
from gapft_harness.verdicts.sample_logs import LogRow

if TYPE_CHECKING:
    from inspect_ai.log import EvalLog, EvalSample

#: Inspect's letters for right and wrong.
_LETTERS = {"C": 1, "I": 0}
#: And those for in part right, and for no answer, as its metrics count them.
_NUMBERS = {**_LETTERS, "P": 0.5, "N": 0}
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
    """Yields a row for each problem, with a response for each epoch; its metrics are the scorers.

    A scorer's number is the mean over epochs; scores that are all right or wrong are verdicts.

    Raises:
        UserError: as ``read_inspect``; graded scores are no mistake.
    """
    by_document = ImportChoice([], judge=True, on=[("id", "id")])
    for _, epochs in groupby(_samples(log.path), key=lambda one: one[2].id):
        samples = [*epochs]
        rows = [_row(one, at, place, by_document, False) for at, place, one in samples]
        first, document = samples[0][2], rows[0].key[1]
        scores = {
            name: [_number(sample, name) for _, _, sample in samples] for name in first.scores or {}
        }
        told = {name: of for name, of in scores.items() if all(value in (0, 1) for value in of)}
        yield LogRow.of(
            *(log, samples[0][0], document, [row.text for row in rows]),
            passed={name: [value == 1 for value in of] for name, of in told.items()},
            metrics={name: _mean(of) for name, of in scores.items()},
            doc_id=first.id,
            target=first.target,
            arguments={"gen_args_0": {"arg_0": document["input"]}},
        )


def inspect_task(path: Path) -> str:
    """The task's name.

    Raises:
        UserError: as ``read_inspect``.
    """
    return str(_header(path).eval.task)


def _number(sample: EvalSample, name: str) -> Any:
    score = (sample.scores or {}).get(name)
    value = None if score is None else score.value
    return _NUMBERS.get(value, value) if isinstance(value, str) else value


def _mean(values: list[Any]) -> Any:
    """Of numbers; of others the first that is none, so that a message shows it."""
    others = [value for value in values if not isinstance(value, bool | int | float)]
    return others[0] if others else sum(values) / len(values)


def _header(path: Path) -> EvalLog:
    """What is before the samples."""
    try:
        import inspect_ai
        from inspect_ai.log import EvalLog, read_eval_log
    except ImportError as error:
        raise UserError(
            f"{path}: a log of Inspect, and the package inspect-ai is not installed; pip install "
            f"'gapft-harness[inspect]' ({error})"
        ) from error
    known = EvalLog.model_fields["version"].default
    can = f"inspect-ai {inspect_ai.__version__} reads version {known} of its format"
    with _told(path, can):
        header = read_eval_log(str(path), header_only=True)
        if header.version > known:  # of .eval Inspect does not ask
            raise ValueError(f"it is of version {header.version}")
    return header


@contextmanager
def _told(path: Path, can: str) -> Iterator[None]:
    """What Inspect says of a file that it cannot read, in one line."""
    try:
        yield
    except (OSError, RuntimeError, ValueError, KeyError, zipfile.BadZipFile) as error:
        said = " ".join(str(error).split())
        raise UserError(f"{path}: Inspect cannot read it as a whole log: {said} ({can})") from error


def _samples(path: Path) -> Iterator[tuple[int, str, EvalSample]]:
    """Each sample with its number from 1 and its place, one in memory; epochs stand together."""
    header = _header(path)
    from inspect_ai.log import read_eval_log_samples

    with _told(path, f"status: {header.status}"):
        for number, sample in enumerate(read_eval_log_samples(str(path)), 1):
            yield number, f"{path}, sample {sample.id}, epoch {sample.epoch}", sample


def _row(
    sample: EvalSample, number: int, place: str, choice: ImportChoice, greedy: bool
) -> ImportedResponse:
    if sample.error is not None:
        raise UserError(f"{place}: ended in an error; expected a response (inspect eval-retry)")
    verdict, by = (None, "") if choice.judge else _verdict(sample, choice.metric, place)
    rule = {"score": by.removeprefix("score ")}
    text = whole_text(sample.output.completion)
    stopped = str(sample.output.stop_reason)
    # a prompt that fills the model's context: nothing was generated
    finish = CONTEXT if stopped == "model_length" and not text else _STOPPED.get(stopped, "unknown")
    index = GREEDY if greedy else sample.epoch - 1
    return ImportedResponse(
        number, place, _key(sample, choice, place), index, text, verdict, by, finish, rule
    )


def _key(sample: EvalSample, choice: ImportChoice, place: str) -> Key:
    asked = sample.input
    if not isinstance(asked, str):
        users = [message.text for message in asked if message.role == "user"]
        if len(users) != 1 and not choice.on:
            raise UserError(f"{place}: {len(users)} turns of the user; expected one, the prompt")
        asked = "\n\n".join(users)
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
