"""The ``recorded`` sampler: replays a JSONL file of responses instead of generating them.

One record per line; see docs/samplers.md::

    {"id": "logiqa-17", "index": "greedy", "text": "B"}
    {"id": "logiqa-17", "index": 0, "text": "The answer is C"}
    {"id": "logiqa-17", "index": "greedy", "text": "C", "condition": "gapft", "seed": 13}
    {"id": "logiqa-17", "index": -2, "text": "B"}
    {"id": "lcb-1873_A", "index": 0, "attempt": 2, "text": "```python..."}
    {"id": "logiqa-17", "index": 1, "text": "It is A", "passed": true}
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gapft_harness.api import (
    GREEDY,
    Adapter,
    Arm,
    Decoding,
    Generated,
    Generation,
    Register,
    Request,
    Sampler,
    SamplerSettings,
    UserError,
    hookimpl,
)
from gapft_harness.core.errors import did_you_mean
from gapft_harness.core.files import sha256
from gapft_harness.core.json_values import parse_object
from gapft_harness.core.records import FINISH_REASONS
from gapft_harness.core.text import read_lines, replace_surrogates
from gapft_harness.hooks.protocols import ReportGeneration

_KEYS = frozenset(
    {"id", "prompt", "index", "attempt", "text", "condition", "seed", "finish_reason", "passed"}
)


@dataclass(frozen=True, slots=True)
class Record:
    """One response in the file.

    Attributes:
        arm: the trained model that responded; None for the source.
        key_kind: ``id`` or ``prompt``: the content of ``problem``.
        problem: a problem's id, or its exact prompt before any chat template.
        index: ``GREEDY``, or the sample number.
        attempt: the attempt of an episode, from 1.
        text: the response.
        finish_reason: one of ``FINISH_REASONS``; ``unknown`` if the file has none.
        passed: the file's verdict; None: the task's verifier judges.
    """

    arm: Arm | None
    key_kind: str
    problem: str
    index: int
    attempt: int
    text: str
    finish_reason: str
    passed: bool | None


class RecordedSampler:
    """Answers from a file, with the same response for every seed and decoding.

    Prompts and responses are tokenized by the tokenizer of ``model_args.pretrained``.
    """

    def __init__(self, settings: SamplerSettings, adapter: Adapter | None) -> None:
        """Read the file and keep the responses of the source, or of the adapter's arm.

        Raises:
            UserError: ``model_args`` lacks ``responses``, the file is missing, empty, malformed or
                repeats a response, or there is no tokenizer.
        """
        from gapft_harness.api import Retokenizer

        responses_path = settings.model_args.get("responses")
        if not isinstance(responses_path, str):
            raise UserError(
                f"model.args: responses: found {responses_path!r}; the backend 'recorded' needs "
                "the path of a JSONL file of responses"
            )
        self._path = Path(responses_path)
        self._arm = adapter.arm if adapter else None
        self._records = _read_arm_records(self._path, self._arm)
        self._retokenizer = Retokenizer(settings)
        self._read_settings = settings

    def generate(
        self, requests: Sequence[Request], decoding: Decoding, report: ReportGeneration
    ) -> list[Generated]:
        """Return the recorded responses, in order; ``decoding`` and seeds have no effect.

        Raises:
            UserError: a response is not in the file.
        """
        records = [
            [self._find_record(request, index) for index in request.indices] for request in requests
        ]
        prompts = self._retokenizer.prompt_ids(
            [self._retokenizer.render(request) for request in requests]
        )
        ids = iter(self._retokenizer.response_ids([r.text for row in records for r in row]))
        return [
            Generated(
                prompt,
                tuple(
                    Generation(
                        record.text,
                        next(ids),
                        record.finish_reason,
                        "retokenized",
                        passed=record.passed,
                    )
                    for record in row
                ),
            )
            for prompt, row in zip(prompts, records, strict=True)
        ]

    def describe(self) -> dict[str, Any]:
        """Return the file, its hash, and the tokenizer."""
        return {
            "backend": "recorded",
            "pretrained": str(self._read_settings.model_args.get("pretrained")),
            "tokenizer": self._retokenizer.name,
            "start_ids": self._retokenizer.start_ids,
            "responses": str(self._path),
            "responses_sha256": sha256(self._path),
            "arm": self._arm.name if self._arm else None,
            "records": len(self._records),
        }

    def close(self) -> None:
        """Drop the responses."""
        self._records = {}

    def _find_record(self, request: Request, index: int) -> Record:
        attempt = len(request.attempts) + 1
        by_id = self._records.get(("id", request.problem_id, index, attempt))
        by_prompt = self._records.get(("prompt", request.prompt, index, attempt))
        if by_id and by_prompt:
            raise UserError(
                f"{self._path}: two records for {self._describe_request(request, index)}: one by "
                "its id and one by its prompt; expected one"
            )
        record = by_id or by_prompt
        if record is None:
            may_lower_k = attempt == 1 and index != GREEDY
            remedy = "add it, or lower search.k" if may_lower_k else "add it"
            raise UserError(
                f"{self._path}: no record for {self._describe_request(request, index)}, neither by "
                f"its id nor by its exact prompt; {remedy}"
            )
        return record

    def _describe_request(self, request: Request, index: int) -> str:
        model_name = f"the trained model {self._arm.name}" if self._arm else "the source model"
        response_name = "greedy response" if index == GREEDY else f"sample {index}"
        attempt = f", attempt {len(request.attempts) + 1}" if request.attempts else ""
        return f"problem {request.problem_id!r}: {response_name}{attempt} of {model_name}"


def read_records(path: Path) -> Iterator[tuple[int, Record]]:
    """Yield the line number (from 1, blank lines counted) and record of each response in a file.

    Raises:
        UserError: the file cannot be read, or a line is malformed; names file and line.
    """
    for number, line in read_lines(path):
        if line.strip():
            yield number, _parse_record(line, f"{path}:{number}")


def _read_arm_records(path: Path, arm: Arm | None) -> dict[tuple[str, str, int, int], Record]:
    """Read one model's records by (kind of key, problem, index, attempt), and check for repeats."""
    first_lines: dict[tuple[Arm | None, str, str, int, int], int] = {}
    records: dict[tuple[str, str, int, int], Record] = {}
    for number, record in read_records(path):
        key = (record.key_kind, record.problem, record.index, record.attempt)
        first = first_lines.setdefault((record.arm, *key), number)
        if first != number:
            raise UserError(
                f"{path}:{number}: repeats line {first} (same {record.key_kind}, index and model); "
                "expected every response once"
            )
        if record.arm == arm:
            records[key] = record
    if not records:
        model_name = (
            f"condition {arm.condition!r} and seed {arm.seed}" if arm else "the source model"
        )
        raise UserError(f"{path}: no record for {model_name} among {len(first_lines)} records")
    return records


def _parse_record(line: str, place: str) -> Record:
    """Parse and check one line.

    Raises:
        UserError: the line is malformed; the message begins with ``place``.
    """
    record = replace_surrogates(
        parse_object(line, place)
    )  # as a server's reply with the same text is read
    if unknown := sorted(record.keys() - _KEYS):
        raise UserError(f"{place}: unknown key {unknown[0]!r}; {did_you_mean(unknown[0], _KEYS)}")
    if ("id" in record) == ("prompt" in record):
        raise UserError(f"{place}: expected exactly one of the keys 'id' and 'prompt'")
    if ("condition" in record) != ("seed" in record):
        raise UserError(
            f"{place}: expected both 'condition' and 'seed' (a trained model's response) or "
            "neither (the source's)"
        )
    key_kind = "id" if "id" in record else "prompt"
    for key in (key_kind, "text"):
        _expect(isinstance(record.get(key), str), place, record, key, "a string")
    index: Any = record.get("index")
    greedy = index == "greedy"
    expected = "'greedy', or a sample's number from 0"
    _expect(greedy or _is_count(index), place, record, "index", expected)
    attempt = record.get("attempt", 1)
    _expect(_is_count(attempt) and attempt > 0, place, record, "attempt", "a number from 1")
    finish = record.get("finish_reason", "unknown")
    _expect(finish in FINISH_REASONS, place, record, "finish_reason", " or ".join(FINISH_REASONS))
    passed = record.get("passed")
    is_verdict = passed is None or isinstance(passed, bool)
    _expect(is_verdict, place, record, "passed", "true or false")
    arm = None
    if "condition" in record:
        _expect(isinstance(record["condition"], str), place, record, "condition", "a string")
        _expect(_is_count(record["seed"]), place, record, "seed", "a number from 0")
        arm = Arm(record["condition"], record["seed"])
    number = GREEDY if greedy else index
    text, problem = record["text"], record[key_kind]
    return Record(arm, key_kind, problem, number, attempt, text, finish, passed)


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _expect(is_valid: bool, place: str, record: dict[str, Any], key: str, expected: str) -> None:
    if not is_valid:
        value = _shorten(record[key]) if key in record else "nothing"
        raise UserError(f"{place}: key {key!r}: found {value}; expected {expected}")


def _shorten(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 60 else f"{text[:57]}..."


@hookimpl
def register_samplers(register: Register) -> None:
    """Register ``recorded``."""
    register(
        "recorded",
        recorded,
        generates=False,
        start_tokens=True,
        chat_template=has_chat_template_of_model,
    )


def has_chat_template_of_model(settings: SamplerSettings) -> bool:
    """Return whether the tokenizer that computes the ids has a chat template."""
    from gapft_harness.lm_eval_bridge.samplers.retokenizer import has_chat_template

    return has_chat_template(settings)


def recorded(settings: SamplerSettings, adapter: Adapter | None) -> Sampler:
    """Create a sampler that replays the JSONL file named by model.args.responses."""
    return RecordedSampler(settings, adapter)
