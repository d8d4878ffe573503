"""Read logs of Inspect with Inspect's own reader: an epoch is a sample, a scorer is a metric."""

from __future__ import annotations

import re
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gapft_harness.core.errors import UserError
from gapft_harness.core.records import CONTEXT_EXCEEDED, GREEDY
from gapft_harness.core.text import replace_text_surrogates
from gapft_harness.outcomes.samples import Sample, name_score

if TYPE_CHECKING:
    from inspect_ai.log import EvalLog, EvalSample

#: Inspect's letters for right, wrong, partly right and no answer, with the values in its metrics.
_NUMBERS = {"C": 1, "I": 0, "P": 0.5, "N": 0}
_ENDED = "the sample ended in an error; expected a response (inspect eval-retry)"
_FINISH_REASONS = {"stop": "stop", "max_tokens": "length", "model_length": "length"}
#: The beginning of a log in JSON; a folder may contain other JSON files.
_HEAD = re.compile(rb'\s*\{\s*"version"\s*:\s*\d+\s*,.{0,200}?"eval"\s*:\s*\{', re.DOTALL)
_HEAD_BYTES = 400


def is_inspect_log(path: Path) -> bool:
    """Return whether a file is a log of Inspect, in either of its formats."""
    if path.suffix == ".json" and path.is_file():
        try:
            with path.open("rb") as file:
                return _HEAD.match(file.read(_HEAD_BYTES)) is not None
        except OSError:
            return False  # the reader reports why it cannot be read
    return path.suffix == ".eval" and path.is_file()


def find_inspect_task(path: Path) -> str:
    """Return the task's name.

    Raises:
        UserError: as in ``read_inspect``.
    """
    return str(_read_header(path).eval.task)


def read_inspect(path: Path) -> Iterator[Sample]:
    """Yield the response of each epoch of each problem.

    Each entry of a dictionary score is a metric by its key, and also by SCORER.KEY.

    Raises:
        UserError: inspect_ai is not installed, or the log is damaged or incomplete.
    """
    header = _read_header(path)
    from inspect_ai.log import read_eval_log_samples

    has_epochs = (header.eval.config.epochs or 1) > 1
    with _explain_errors(path, f"status: {header.status}"):
        for line, sample in enumerate(read_eval_log_samples(str(path)), 1):
            prompt = _find_prompt(sample)
            identity = {"id": sample.id, "input": prompt, "target": sample.target}
            failed = sample.error is not None
            yield Sample(
                problem={**sample.metadata, **identity},
                index=sample.epoch - 1 if has_epochs else GREEDY,
                scores=_find_scores(header, sample),
                text=None if failed else replace_text_surrogates(sample.output.completion),
                gold=sample.target,
                prompt=prompt,
                reason=_ENDED if failed else "",
                ended=_find_finish_reason(sample),
                line=line,
                number=sample.id,
            )


def _find_scores(header: EvalLog, sample: EvalSample) -> dict[str, Any]:
    """Find a sample's number for each scorer of the log; None where it has none."""
    own = sample.scores or {}
    pairs = [(s.scorer, s.name) for s in (header.results.scores if header.results else [])]
    for scorer, score in own.items():
        keys = [*score.value] if isinstance(score.value, dict) else [scorer]
        pairs += [(scorer, key) for key in keys if (scorer, key) not in pairs]
    numbers: dict[str, Any] = {}
    aliases: dict[str, Any] = {}
    for scorer, key in dict.fromkeys(pairs):
        if key == scorer or (key in own and not isinstance(own[key].value, dict)):
            # a scorer that is used twice has its own name
            numbers.setdefault(key, _read_number(sample, key, None))
            continue
        number = _read_number(sample, scorer, key)
        aliases[f"{scorer}.{key}"] = number
        if len({other for other, other_key in pairs if other_key == key}) == 1:
            numbers.setdefault(key, number)
    return {name_score(name): value for name, value in {**numbers, **aliases}.items()}


def _read_number(sample: EvalSample, scorer: str, key: str | None) -> Any:
    score = (sample.scores or {}).get(scorer)
    value = None if score is None else score.value
    if key is not None:
        value = value.get(key) if isinstance(value, dict) else None
    return _NUMBERS.get(value, value) if isinstance(value, str) else value


def _find_prompt(sample: EvalSample) -> str:
    if isinstance(sample.input, str):
        return sample.input
    return "\n\n".join(message.text for message in sample.input if message.role == "user")


def _find_finish_reason(sample: EvalSample) -> str:
    if not sample.output.choices:  # it ended with an error before the model answered
        return "unknown"
    stop_reason = str(sample.output.stop_reason)
    if stop_reason == "model_length" and not sample.output.completion:
        return CONTEXT_EXCEEDED  # the prompt fills the model's context, so nothing was generated
    return _FINISH_REASONS.get(stop_reason, "unknown")


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
