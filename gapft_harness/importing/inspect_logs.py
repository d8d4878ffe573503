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
from gapft_harness.core.records import CONTEXT_EXCEEDED, GREEDY, Verdict
from gapft_harness.core.text import replace_text_surrogates
from gapft_harness.importing.rows import ImportChoice, ImportedResponse, Key, parse_verdict
from gapft_harness.verdicts.log_files import Log
from gapft_harness.verdicts.sample_logs import LogRow

if TYPE_CHECKING:
    from inspect_ai.log import EvalLog, EvalSample

#: Inspect's letters for right and wrong.
_LETTERS = {"C": 1, "I": 0}
#: Also its letters for partly right and for no answer, with the values in its metrics.
_NUMBERS = {**_LETTERS, "P": 0.5, "N": 0}
_ENDED = "the sample ended in an error; expected a response (inspect eval-retry)"
_FINISH_REASONS = {"stop": "stop", "max_tokens": "length", "model_length": "length"}


def read_inspect(path: Path, choice: ImportChoice, greedy: bool) -> Iterator[ImportedResponse]:
    """Yield the responses of a log, with one in memory at a time.

    Raises:
        UserError: inspect_ai is not installed, the log is damaged or incomplete, or a sample has no
            clear verdict; the message has file, sample and epoch.
    """
    for number, place, sample in _read_samples(path):
        yield _build_response(sample, number, place, choice, greedy)


def read_inspect_rows(log: Log) -> Iterator[LogRow]:
    """Yield a row for each problem, with a response for each epoch; its metrics are the scorers.

    A scorer's number is the mean over epochs, None where an epoch has no score. Scores that are all
    right or wrong are also verdicts. Each entry of a dictionary score is a metric by its key, and
    also by SCORER.KEY.

    Raises:
        UserError: as in ``read_inspect``, but graded and missing scores are allowed.
    """
    by_document = ImportChoice([], judge=True, on=[("id", "id")])
    header = _read_header(log.path)
    for _, epochs in groupby(_read_samples(log.path, header), key=lambda item: item[2].id):
        samples = [*epochs]
        number, place, first_sample = samples[0]
        document = _find_key(first_sample, by_document, place)[1]
        names = _list_metrics(header, first_sample)
        scores = {
            name: [_read_number(sample, *names[name]) for _, _, sample in samples] for name in names
        }
        verdicts = {
            name: values
            for name, values in scores.items()
            if all(value in (0, 1) for value in values)
        }
        texts = [replace_text_surrogates(sample.output.completion) for _, _, sample in samples]
        fields: dict[str, Any] = {
            f"{scorer}.{key}": _compute_mean(scores[name])
            for name, (scorer, key) in names.items()
            if key is not None
        }
        if any(sample.error is not None for _, _, sample in samples):
            texts, fields["error"] = [], _ENDED
        yield LogRow.of(
            *(log, number, document, texts),
            passed={name: [value == 1 for value in values] for name, values in verdicts.items()},
            metrics={name: _compute_mean(values) for name, values in scores.items()},
            doc_id=first_sample.id,
            target=first_sample.target,
            arguments={"gen_args_0": {"arg_0": document["input"]}},
            finish_reasons=[_find_finish_reason(sample) for _, _, sample in samples],
            **fields,
        )


def read_inspect_task(path: Path) -> str:
    """Read the task's name.

    Raises:
        UserError: as in ``read_inspect``.
    """
    return str(_read_header(path).eval.task)


def _list_metrics(header: EvalLog, sample: EvalSample) -> dict[str, tuple[str, str | None]]:
    """Return the scorer of each metric, and the key of its entry in a dictionary score.

    A sample may not have all scores; the log's results list all of them.
    """
    own_scores = sample.scores or {}
    pairs = [
        (score.scorer, score.name) for score in (header.results.scores if header.results else [])
    ]
    for scorer, score in own_scores.items():
        keys = [*score.value] if isinstance(score.value, dict) else [scorer]
        pairs += [(scorer, key) for key in keys if (scorer, key) not in pairs]
    keys_of = {key: [scorer for scorer, other in pairs if other == key] for _, key in pairs}
    metrics: dict[str, tuple[str, str | None]] = {}
    for scorer, key in dict.fromkeys(pairs):
        if key in own_scores and not isinstance(own_scores[key].value, dict):
            metrics.setdefault(key, (key, None))  # a scorer that is used twice has its own name
        elif key == scorer:
            metrics.setdefault(key, (scorer, None))
        else:
            name = key if len({*keys_of[key]}) == 1 else f"{scorer}.{key}"
            metrics.setdefault(name, (scorer, key))
    return metrics


def _read_number(sample: EvalSample, scorer: str, key: str | None) -> Any:
    score = (sample.scores or {}).get(scorer)
    value = None if score is None else score.value
    if key is not None:
        value = value.get(key) if isinstance(value, dict) else None
    return _NUMBERS.get(value, value) if isinstance(value, str) else value


def _compute_mean(values: list[Any]) -> Any:
    """Return the mean, or the first value that is not a number for the error message."""
    others = [value for value in values if not isinstance(value, bool | int | float)]
    return others[0] if others else sum(values) / len(values)


def _read_header(path: Path) -> EvalLog:
    """Read the log's header, without its samples."""
    try:
        import inspect_ai
        from inspect_ai.log import EvalLog, read_eval_log
    except ImportError as error:
        raise UserError(
            f"{path}: logs of Inspect need the package inspect-ai, which is not installed; run: "
            f"pip install 'gapft-harness[inspect]' ({error})"
        ) from error
    newest_version = EvalLog.model_fields["version"].default
    supported = f"inspect-ai {inspect_ai.__version__} reads version {newest_version} of its format"
    with _explain_errors(path, supported):
        header = read_eval_log(str(path), header_only=True)
        if header.version > newest_version:  # Inspect does not check the version of .eval files
            raise ValueError(f"it has version {header.version}")
    return header


@contextmanager
def _explain_errors(path: Path, context: str) -> Iterator[None]:
    """Turn Inspect's errors for a file into a one-line ``UserError``."""
    try:
        yield
    except (OSError, RuntimeError, ValueError, KeyError, zipfile.BadZipFile) as error:
        reason = " ".join(str(error).split())
        raise UserError(
            f"{path}: Inspect cannot read the file as a complete log: {reason} ({context})"
        ) from error


def _read_samples(
    path: Path, header: EvalLog | None = None
) -> Iterator[tuple[int, str, EvalSample]]:
    """Yield each sample with its number from 1 and its place; epochs of a problem are adjacent."""
    header = header or _read_header(path)
    from inspect_ai.log import read_eval_log_samples

    with _explain_errors(path, f"status: {header.status}"):
        for number, sample in enumerate(read_eval_log_samples(str(path)), 1):
            yield number, f"{path}, sample {sample.id}, epoch {sample.epoch}", sample


def _build_response(
    sample: EvalSample, number: int, place: str, choice: ImportChoice, greedy: bool
) -> ImportedResponse:
    if sample.error is not None:
        raise UserError(f"{place}: {_ENDED}")
    verdict, verdict_source = (
        (None, "") if choice.judge else _read_verdict(sample, choice.metric, place)
    )
    rule = {"score": verdict_source.removeprefix("score ")}
    text = replace_text_surrogates(sample.output.completion)
    index = GREEDY if greedy else sample.epoch - 1
    return ImportedResponse(
        number,
        place,
        _find_key(sample, choice, place),
        index,
        text,
        verdict,
        verdict_source,
        _find_finish_reason(sample),
        rule,
    )


def _find_finish_reason(sample: EvalSample) -> str:
    if not sample.output.choices:  # it ended with an error before the model answered
        return "unknown"
    stop_reason = str(sample.output.stop_reason)
    if stop_reason == "model_length" and not sample.output.completion:
        return CONTEXT_EXCEEDED  # the prompt fills the model's context, so nothing was generated
    return _FINISH_REASONS.get(stop_reason, "unknown")


def _find_key(sample: EvalSample, choice: ImportChoice, place: str) -> Key:
    prompt = sample.input
    if not isinstance(prompt, str):
        users = [message.text for message in prompt if message.role == "user"]
        if len(users) != 1 and not choice.on:
            raise UserError(
                f"{place}: found {len(users)} turns of the user; expected one, the prompt"
            )
        prompt = "\n\n".join(users)
    if not choice.on:
        return "prompt", prompt
    record = {"id": sample.id, "input": prompt, "target": sample.target}
    return "doc", {**sample.metadata, **record}


def _read_verdict(sample: EvalSample, metric: str | None, place: str) -> tuple[Verdict | None, str]:
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
    by_key = [score_name for score_name in scores if score_name.partition(".")[2] == name]
    if name not in scores and len(by_key) == 1:
        (name,) = by_key
    if name not in scores:
        raise UserError(f"{place}: unknown score {name!r}; {did_you_mean(name, scores)}")
    value = scores[name]
    if isinstance(value, str):
        value = _LETTERS.get(value, value)
    return parse_verdict(value, f"score {name}", place), f"score {name}"
