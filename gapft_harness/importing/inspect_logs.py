"""Read logs of Inspect with Inspect's own reader: a sample for each epoch of each problem.

An epoch is a response to the problem, and a scorer is a metric.
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
#: Also its letters for partly right and for no answer, with the values in its metrics.
_NUMBERS = {**_LETTERS, "P": 0.5, "N": 0}
_ENDED = "the sample ended in an error; expected a response (inspect eval-retry)"
_STOPPED = {"stop": "stop", "max_tokens": "length", "model_length": "length"}


def read_inspect(path: Path, choice: ImportChoice, greedy: bool) -> Iterator[ImportedResponse]:
    """Yield the responses of a log, with one in memory at a time.

    Raises:
        UserError: inspect_ai is not installed, the log is damaged or incomplete, or a sample has no
            clear verdict; the message has file, sample and epoch.
    """
    for number, place, sample in _samples(path):
        yield _row(sample, number, place, choice, greedy)


def inspect_rows(log: Log) -> Iterator[LogRow]:
    """Yield a row for each problem, with a response for each epoch; its metrics are the scorers.

    A scorer's number is the mean over epochs, None where an epoch has no score. Scores that are all
    right or wrong are also verdicts. Each entry of a dictionary score is a metric by its key, and
    also by SCORER.KEY.

    Raises:
        UserError: as in ``read_inspect``, but graded and missing scores are allowed.
    """
    by_document = ImportChoice([], judge=True, on=[("id", "id")])
    header = _header(log.path)
    for _, epochs in groupby(_samples(log.path, header), key=lambda one: one[2].id):
        samples = [*epochs]
        number, place, first = samples[0]
        document = _key(first, by_document, place)[1]
        names = _list_metrics(header, first)
        scores = {
            name: [_number(sample, *names[name]) for _, _, sample in samples] for name in names
        }
        told = {name: of for name, of in scores.items() if all(value in (0, 1) for value in of)}
        texts = [whole_text(sample.output.completion) for _, _, sample in samples]
        fields: dict[str, Any] = {
            f"{scorer}.{key}": _mean(scores[name])
            for name, (scorer, key) in names.items()
            if key is not None
        }
        if any(sample.error is not None for _, _, sample in samples):
            texts, fields["error"] = [], _ENDED
        yield LogRow.of(
            *(log, number, document, texts),
            passed={name: [value == 1 for value in of] for name, of in told.items()},
            metrics={name: _mean(of) for name, of in scores.items()},
            doc_id=first.id,
            target=first.target,
            arguments={"gen_args_0": {"arg_0": document["input"]}},
            **fields,
        )


def inspect_task(path: Path) -> str:
    """Read the task's name.

    Raises:
        UserError: as in ``read_inspect``.
    """
    return str(_header(path).eval.task)


def _list_metrics(header: EvalLog, sample: EvalSample) -> dict[str, tuple[str, str | None]]:
    """Return the scorer of each metric, and the key of its entry in a dictionary score.

    A sample may not have all scores; the log's results list all of them.
    """
    own = sample.scores or {}
    pairs = [
        (score.scorer, score.name) for score in (header.results.scores if header.results else [])
    ]
    for scorer, score in own.items():
        keys = [*score.value] if isinstance(score.value, dict) else [scorer]
        pairs += [(scorer, key) for key in keys if (scorer, key) not in pairs]
    keys_of = {key: [scorer for scorer, other in pairs if other == key] for _, key in pairs}
    found: dict[str, tuple[str, str | None]] = {}
    for scorer, key in dict.fromkeys(pairs):
        if key in own and not isinstance(own[key].value, dict):
            found.setdefault(key, (key, None))  # a scorer that is used twice has its own name
        elif key == scorer:
            found.setdefault(key, (scorer, None))
        else:
            name = key if len({*keys_of[key]}) == 1 else f"{scorer}.{key}"
            found.setdefault(name, (scorer, key))
    return found


def _number(sample: EvalSample, scorer: str, key: str | None) -> Any:
    score = (sample.scores or {}).get(scorer)
    value = None if score is None else score.value
    if key is not None:
        value = value.get(key) if isinstance(value, dict) else None
    return _NUMBERS.get(value, value) if isinstance(value, str) else value


def _mean(values: list[Any]) -> Any:
    """Return the mean, or the first value that is not a number for the error message."""
    others = [value for value in values if not isinstance(value, bool | int | float)]
    return others[0] if others else sum(values) / len(values)


def _header(path: Path) -> EvalLog:
    """Read the log's header, without its samples."""
    try:
        import inspect_ai
        from inspect_ai.log import EvalLog, read_eval_log
    except ImportError as error:
        raise UserError(
            f"{path}: logs of Inspect need the package inspect-ai, which is not installed; run: "
            f"pip install 'gapft-harness[inspect]' ({error})"
        ) from error
    known = EvalLog.model_fields["version"].default
    can = f"inspect-ai {inspect_ai.__version__} reads version {known} of its format"
    with _told(path, can):
        header = read_eval_log(str(path), header_only=True)
        if header.version > known:  # Inspect does not check the version of .eval files
            raise ValueError(f"it has version {header.version}")
    return header


@contextmanager
def _told(path: Path, can: str) -> Iterator[None]:
    """Turn Inspect's errors for a file into a one-line ``UserError``."""
    try:
        yield
    except (OSError, RuntimeError, ValueError, KeyError, zipfile.BadZipFile) as error:
        said = " ".join(str(error).split())
        raise UserError(
            f"{path}: Inspect cannot read the file as a complete log: {said} ({can})"
        ) from error


def _samples(path: Path, header: EvalLog | None = None) -> Iterator[tuple[int, str, EvalSample]]:
    """Yield each sample with its number from 1 and its place; epochs of a problem are adjacent."""
    header = header or _header(path)
    from inspect_ai.log import read_eval_log_samples

    with _told(path, f"status: {header.status}"):
        for number, sample in enumerate(read_eval_log_samples(str(path)), 1):
            yield number, f"{path}, sample {sample.id}, epoch {sample.epoch}", sample


def _row(
    sample: EvalSample, number: int, place: str, choice: ImportChoice, greedy: bool
) -> ImportedResponse:
    if sample.error is not None:
        raise UserError(f"{place}: {_ENDED}")
    verdict, by = (None, "") if choice.judge else _verdict(sample, choice.metric, place)
    rule = {"score": by.removeprefix("score ")}
    text = whole_text(sample.output.completion)
    stopped = str(sample.output.stop_reason)
    # the prompt fills the model's context, so nothing was generated
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
            raise UserError(
                f"{place}: found {len(users)} turns of the user; expected one, the prompt"
            )
        asked = "\n\n".join(users)
    if not choice.on:
        return "prompt", asked
    own = {"id": sample.id, "input": asked, "target": sample.target}
    return "doc", {**sample.metadata, **own}


def _verdict(sample: EvalSample, metric: str | None, place: str) -> tuple[Verdict | None, str]:
    scores: dict[str, Any] = {}
    for scorer, score in (sample.scores or {}).items():
        if isinstance(score.value, dict):
            scores |= {f"{scorer}.{key}": value for key, value in score.value.items()}
        else:
            scores[scorer] = score.value
    if metric is None and len(scores) > 1:
        raise UserError(
            f"{place}: found several scores: {', '.join(scores)}; choose one: --metric NAME"
        )
    name = metric or next(iter(scores), None)
    if name is None:
        return None, ""
    by_key = [known for known in scores if known.partition(".")[2] == name]
    if name not in scores and len(by_key) == 1:
        (name,) = by_key
    if name not in scores:
        raise UserError(f"{place}: unknown score {name!r}; {did_you_mean(name, scores)}")
    value = scores[name]
    if isinstance(value, str):
        value = _LETTERS.get(value, value)
    return verdict_of(value, f"score {name}", place), f"score {name}"
