"""The ``recorded`` sampler: replays a JSONL file of responses instead of generating them.

One record per line; see docs/samplers.md::

    {"id": "logiqa-17", "index": "greedy", "text": "B"}
    {"id": "logiqa-17", "index": 0, "text": "The answer is C"}
    {"id": "logiqa-17", "index": "greedy", "text": "C", "condition": "gapft", "seed": 13}
    {"id": "lcb-1873_A", "index": 0, "attempt": 2, "text": "```python..."}
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gapft_harness.api import (
    FINISH_REASONS,
    GREEDY,
    Adapter,
    Arm,
    Decoding,
    Generated,
    Generation,
    RegisterSampler,
    ReportGeneration,
    Request,
    Sampler,
    SamplerSettings,
    UserError,
    did_you_mean,
    hookimpl,
    parse_object,
    read_lines,
    sha256,
    whole,
)

_KEYS = frozenset(
    {"id", "prompt", "index", "attempt", "text", "condition", "seed", "finish_reason"}
)


@dataclass(frozen=True, slots=True)
class Record:
    """One response in the file.

    Attributes:
        arm: the trained model that responded; None for the source.
        key_kind: ``id`` or ``prompt``: the content of ``problem``.
        problem: a problem's id, or its exact prompt before any chat template.
        index: ``GREEDY`` or the sample number.
        attempt: the attempt of an episode, from 1.
        text: the response.
        finish_reason: one of ``FINISH_REASONS``; ``unknown`` if the file has none.
    """

    arm: Arm | None
    by: str
    problem: str
    index: int
    attempt: int
    text: str
    finish_reason: str


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

        given = settings.model_args.get("responses")
        if not isinstance(given, str):
            raise UserError(
                f"model.args: responses: found {given!r}; the backend 'recorded' needs the path "
                "of a JSONL file of responses"
            )
        self._path = Path(given)
        self._arm = adapter.arm if adapter else None
        self._kept = _of_arm(self._path, self._arm)
        self._retokenizer = Retokenizer(settings)
        self._settings = settings

    def generate(
        self, requests: Sequence[Request], decoding: Decoding, report: ReportGeneration
    ) -> list[Generated]:
        """Return the recorded responses, in order; ``decoding`` and seeds have no effect.

        Raises:
            UserError: a response is not in the file.
        """
        records = [
            [self._find(request, index) for index in request.indices] for request in requests
        ]
        prompts = self._retokenizer.prompt_ids(
            [self._retokenizer.render(request) for request in requests]
        )
        ids = iter(self._retokenizer.response_ids([r.text for row in records for r in row]))
        return [
            Generated(
                prompt,
                tuple(
                    Generation(record.text, next(ids), record.finish_reason, "retokenized")
                    for record in row
                ),
            )
            for prompt, row in zip(prompts, records, strict=True)
        ]

    def describe(self) -> dict[str, Any]:
        """Return the file, its hash, and the tokenizer."""
        return {
            "backend": "recorded",
            "pretrained": str(self._settings.model_args.get("pretrained")),
            "tokenizer": self._retokenizer.name,
            "start_ids": self._retokenizer.start_ids,
            "responses": str(self._path),
            "responses_sha256": sha256(self._path),
            "arm": self._arm.name if self._arm else None,
            "records": len(self._kept),
        }

    def close(self) -> None:
        """Drop the responses."""
        self._kept = {}

    def _find(self, request: Request, index: int) -> Record:
        attempt = len(request.attempts) + 1
        by_id = self._kept.get(("id", request.problem_id, index, attempt))
        by_prompt = self._kept.get(("prompt", request.prompt, index, attempt))
        if by_id and by_prompt:
            raise UserError(
                f"{self._path}: two records for {self._what(request, index)}: one by its id "
                "and one by its prompt; expected one"
            )
        found = by_id or by_prompt
        if found is None:
            remedy = "add it, or lower search.k" if attempt == 1 else "add it"
            raise UserError(
                f"{self._path}: no record for {self._what(request, index)}, neither by its id nor "
                f"by its exact prompt; {remedy}"
            )
        return found

    def _what(self, request: Request, index: int) -> str:
        whose = f"the trained model {self._arm.name}" if self._arm else "the source model"
        which = "greedy response" if index == GREEDY else f"sample {index}"
        attempt = f", attempt {len(request.attempts) + 1}" if request.attempts else ""
        return f"problem {request.problem_id!r}: {which}{attempt} of {whose}"


def read_records(path: Path) -> Iterator[tuple[int, Record]]:
    """Yield the line number (from 1, blank lines counted) and record of each response in a file.

    Raises:
        UserError: the file cannot be read, or a line is malformed; names file and line.
    """
    for number, line in read_lines(path):
        if line.strip():
            yield number, _parse(line, f"{path}:{number}")


def _of_arm(path: Path, arm: Arm | None) -> dict[tuple[str, str, int, int], Record]:
    """Read one model's records by (kind of key, problem, index, attempt), and check for repeats."""
    seen: dict[tuple[Arm | None, str, str, int, int], int] = {}
    kept: dict[tuple[str, str, int, int], Record] = {}
    for number, record in read_records(path):
        key = (record.by, record.problem, record.index, record.attempt)
        first = seen.setdefault((record.arm, *key), number)
        if first != number:
            raise UserError(
                f"{path}:{number}: repeats line {first} (same {record.by}, index and model); "
                "expected every response once"
            )
        if record.arm == arm:
            kept[key] = record
    if not kept:
        whose = f"condition {arm.condition!r} and seed {arm.seed}" if arm else "the source model"
        raise UserError(f"{path}: no record for {whose} among {len(seen)} records")
    return kept


def _parse(line: str, where: str) -> Record:
    """Parse and check one line.

    Raises:
        UserError: the line is malformed; the message begins with ``place``.
    """
    record = whole(parse_object(line, where))  # as a server's reply with the same text is read
    if unknown := sorted(record.keys() - _KEYS):
        raise UserError(f"{where}: unknown key {unknown[0]!r}; {did_you_mean(unknown[0], _KEYS)}")
    if ("id" in record) == ("prompt" in record):
        raise UserError(f"{where}: expected exactly one of the keys 'id' and 'prompt'")
    if ("condition" in record) != ("seed" in record):
        raise UserError(
            f"{where}: expected both 'condition' and 'seed' (a trained model's response) or "
            "neither (the source's)"
        )
    by = "id" if "id" in record else "prompt"
    for key in (by, "text"):
        _expect(isinstance(record.get(key), str), where, record, key, "a string")
    index: Any = record.get("index")
    greedy = index == "greedy"
    _expect(greedy or _is_count(index), where, record, "index", "'greedy' or a number from 0")
    attempt = record.get("attempt", 1)
    _expect(_is_count(attempt) and attempt > 0, where, record, "attempt", "a number from 1")
    finish = record.get("finish_reason", "unknown")
    _expect(finish in FINISH_REASONS, where, record, "finish_reason", " or ".join(FINISH_REASONS))
    arm = None
    if "condition" in record:
        _expect(isinstance(record["condition"], str), where, record, "condition", "a string")
        _expect(_is_count(record["seed"]), where, record, "seed", "a number from 0")
        arm = Arm(record["condition"], record["seed"])
    number = GREEDY if greedy else index
    return Record(arm, by, record[by], number, attempt, record["text"], finish)


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _expect(holds: bool, where: str, record: dict[str, Any], key: str, expected: str) -> None:
    if not holds:
        found = _short(record[key]) if key in record else "nothing"
        raise UserError(f"{where}: key {key!r}: found {found}; expected {expected}")


def _short(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 60 else f"{text[:57]}..."


@hookimpl
def register_samplers(register: RegisterSampler) -> None:
    """Register ``recorded``."""
    register("recorded", recorded, generates=False, start_tokens=True, chat_template=has_template)


def has_template(settings: SamplerSettings) -> bool:
    """Return whether the tokenizer that computes the ids has a chat template."""
    from gapft_harness.api import has_chat_template

    return has_chat_template(settings)


def recorded(settings: SamplerSettings, adapter: Adapter | None) -> Sampler:
    """Create a sampler that replays the JSONL file named by model.args.responses."""
    return RecordedSampler(settings, adapter)
