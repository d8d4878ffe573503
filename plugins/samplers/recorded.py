"""The ``recorded`` sampler: replays a JSONL file of responses instead of generating them.

One record per line; see docs/samplers.md::

    {"id": "logiqa-17", "index": "greedy", "text": "B"}
    {"id": "logiqa-17", "index": 0, "text": "The answer is C"}
    {"id": "logiqa-17", "index": "greedy", "text": "C", "condition": "gapft", "seed": 13}
    {"id": "lcb-1873_A", "index": 0, "attempt": 2, "text": "```python..."}
    {"id": "logiqa-17", "index": 1, "text": "It is A", "passed": true}
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from gapft_harness.api import (
    GREEDY,
    Adapter,
    Arm,
    Decoding,
    Generated,
    Generation,
    Register,
    Request,
    SamplerSettings,
    UserError,
    hookimpl,
)
from gapft_harness.core.errors import refuse_unknown
from gapft_harness.core.files import sha256
from gapft_harness.core.json_values import read_objects
from gapft_harness.core.records import FINISH_REASONS
from gapft_harness.core.text import replace_surrogates
from gapft_harness.core.validation import describe_fault
from gapft_harness.hooks.protocols import ReportGeneration
from gapft_harness.lm_eval_bridge.samplers.retokenizer import Retokenizer, has_chat_template


class Record(BaseModel):
    """One response in the file.

    Attributes:
        id: the problem's id.
        prompt: instead of the id, the problem's exact prompt before any chat template.
        index: ``greedy``, or the sample's number.
        attempt: the attempt of an episode, from 1.
        text: the response.
        condition: with ``seed``, the trained model that responded; without both, the source.
        seed: the training seed.
        finish_reason: one of ``FINISH_REASONS``.
        passed: the file's verdict; None: the task's verifier judges.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    id: str | None = None
    prompt: str | None = None
    index: int | str
    attempt: int = Field(1, ge=1)
    text: str
    condition: str | None = None
    seed: int | None = Field(None, ge=0)
    finish_reason: str = Field("unknown", pattern=f"^({'|'.join(FINISH_REASONS)})$")
    passed: bool | None = None

    @field_validator("index")
    @classmethod
    def _check_index(cls, index: int | str) -> int | str:
        if index != "greedy" and (isinstance(index, str) or index < 0):
            raise ValueError("expected 'greedy', or a sample's number from 0")
        return index

    @model_validator(mode="after")
    def _check_pairs(self) -> Self:
        if (self.id is None) == (self.prompt is None):
            raise ValueError("expected exactly one of the keys 'id' and 'prompt'")
        if (self.condition is None) != (self.seed is None):
            raise ValueError(
                "expected both 'condition' and 'seed' (a trained model's response) or neither "
                "(the source's)"
            )
        return self

    @property
    def arm(self) -> Arm | None:
        """The trained model that responded; None for the source."""
        if self.condition is None or self.seed is None:
            return None
        return Arm(self.condition, self.seed)

    @property
    def key(self) -> tuple[str, str, int, int]:
        """What identifies it among the responses of its model."""
        kind, problem = ("id", self.id) if self.id is not None else ("prompt", self.prompt)
        number = GREEDY if isinstance(self.index, str) else self.index
        return kind, str(problem), number, self.attempt


class RecordedSampler:
    """Replays the JSONL file named by model.args.responses.

    The response is the same for every seed and decoding. Prompts and responses are tokenized by the
    tokenizer of ``model_args.pretrained``.
    """

    def __init__(self, settings: SamplerSettings, adapter: Adapter | None) -> None:
        """Read the file and keep the responses of the source, or of the adapter's arm.

        Raises:
            UserError: ``model_args`` lacks ``responses``, the file is missing, empty, malformed or
                repeats a response, or there is no tokenizer.
        """
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
        self._settings = settings

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
            "pretrained": str(self._settings.model_args.get("pretrained")),
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


def _read_arm_records(path: Path, arm: Arm | None) -> dict[tuple[str, str, int, int], Record]:
    """Read one model's records by (kind of key, problem, index, attempt), and check for repeats."""
    first_lines: dict[tuple[Arm | None, str, str, int, int], int] = {}
    records: dict[tuple[str, str, int, int], Record] = {}
    for number, content, place in read_objects(path):
        record = _parse_record(content, place)
        first = first_lines.setdefault((record.arm, *record.key), number)
        if first != number:
            raise UserError(
                f"{place}: repeats line {first} (same {record.key[0]}, index and model); "
                "expected every response once"
            )
        if record.arm == arm:
            records[record.key] = record
    if not records:
        model_name = (
            f"condition {arm.condition!r} and seed {arm.seed}" if arm else "the source model"
        )
        raise UserError(f"{path}: no record for {model_name} among {len(first_lines)} records")
    return records


def _parse_record(content: dict[str, Any], place: str) -> Record:
    """Check one line.

    Raises:
        UserError: it is malformed; the message begins with ``place``.
    """
    refuse_unknown(content, Record.model_fields, place)
    try:
        # as a server's reply with the same text is read
        return Record.model_validate(replace_surrogates(content))
    except ValidationError as error:
        fault = error.errors()[0]
        raise UserError(f"{place}: {describe_fault(fault, fault['loc'][:1])}") from error


@hookimpl
def register_samplers(register: Register) -> None:
    """Register ``recorded``."""
    register(
        "recorded",
        RecordedSampler,
        generates=False,
        start_tokens=True,
        chat_template=has_chat_template,
    )
