"""Generate problems with Reasoning Gym's generators, and split them by a hash of the question.

One sequence of different problems is generated, and the hash of a question decides between pool and
audit. A pool and an audit generated one after the other would differ: if few problems are possible,
those left for the second are rarer and harder.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import os
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, JsonValue, ValidationError

from gapft_harness.core.errors import GapftError, UserError, describe_error
from gapft_harness.core.extras import require_package
from gapft_harness.core.streams import derive_key
from gapft_harness.core.validation import describe_fault
from gapft_harness.lm_eval_bridge.benchmarks.splits import Splits
from gapft_harness.lm_eval_bridge.task_file.documents import Document, Documents
from gapft_harness.verification.pool import WorkerPool

PACKAGE = "reasoning_gym"

#: Number of problems per seed: a size that every generator's default settings allow.
_CHUNK = 500
#: A generator has no more problems after this many draws in a row without a new one; the second
#: number is per problem found: one of N equally likely problems is then missed with probability
#: e^-10.
_MAX_REPEATS, _MAX_REPEATS_EACH = 2000, 10
#: Maximum seconds of a generator for all its problems.
_TIMEOUT = 3600.0


@dataclass(frozen=True, slots=True)
class Order:
    """The problems that one generator must make.

    Attributes:
        generator: its name in Reasoning Gym.
        settings: its settings, JSON values.
        seed: the task's seed.
        count: number of different problems.
    """

    generator: str
    settings: dict[str, Any]
    seed: int
    count: int


class _Generator(BaseModel):
    """The weight of a generator; all other keys are its own settings, JSON values."""

    model_config = ConfigDict(extra="allow")
    __pydantic_extra__: dict[str, JsonValue]

    weight: float = Field(1.0, gt=0, strict=True, allow_inf_nan=False)


class _Options(BaseModel):
    """The arguments of ``load``."""

    generators: dict[str, _Generator | None] = Field(min_length=1)
    pool: int = Field(ge=1, strict=True)
    audit: int = Field(ge=1, strict=True)
    seed: int = Field(ge=0, strict=True)


def load(generators: Mapping[str, Any], pool: int, audit: int, seed: int = 0) -> Splits:
    """Generate the splits ``pool`` and ``audit``.

    Args:
        generators: each generator's settings by its name, with ``weight``, its share (default 1).
        pool: number of problems in the pool.
        audit: number of problems in the audit.
        seed: every generator's seed is derived from this seed and the generator's name.

    Returns:
        Splits of records with question, answer, generator, and ``gold`` for the verifier
        ``reasoning_gym``. They are the same in every process.

    Raises:
        UserError: missing package, wrong key or value, or a generator with too few
            different problems.
    """
    require_package(PACKAGE)
    try:
        options = _Options.model_validate(
            {"generators": generators, "pool": pool, "audit": audit, "seed": seed}
        )
    except ValidationError as error:
        fault = error.errors()[0]
        raise UserError(describe_fault(fault, fault["loc"])) from error
    chosen = {name: made or _Generator() for name, made in options.generators.items()}
    weights = {name: generator.weight for name, generator in chosen.items()}
    in_pool = share_out(weights, pool)
    in_audit = share_out(weights, audit)
    orders = [
        Order(name, dict(generator.model_extra or {}), seed, in_pool[name] + in_audit[name])
        for name, generator in chosen.items()
    ]
    splits: dict[str, list[Document]] = {"pool": [], "audit": []}
    for order, problems in zip(orders, _generate_all(orders), strict=True):
        ranked = sorted(problems, key=_hash_question)
        splits["audit"] += ranked[: in_audit[order.generator]]
        splits["pool"] += ranked[in_audit[order.generator] :]
    _check_different(splits)
    return Splits({name: _build_split(name, problems) for name, problems in splits.items()})


def share_out(weights: Mapping[str, float], count: int) -> dict[str, int]:
    """Divide a number of problems by weights; a larger number never reduces a share."""
    shares = dict.fromkeys(weights, 0)
    total = sum(weights.values())
    for number in range(1, count + 1):
        shares[max(weights, key=lambda name: weights[name] / total * number - shares[name])] += 1
    return shares


def _generate_all(orders: Sequence[Order]) -> Iterator[list[Document]]:
    """Generate all problems in worker processes; their fixed hash seed fixes the order of sets."""
    workers = min(len(orders), os.cpu_count() or 1)
    with WorkerPool(f"{__name__}:generate", workers=workers, timeout_s=_TIMEOUT) as processes:
        outcomes = processes.map([asdict(order) for order in orders])
    for order, outcome in zip(orders, outcomes, strict=True):
        if outcome.status != "done":
            raise GapftError(f"generators.{order.generator}: {outcome.status}: {outcome.reason}")
        if "fault" in outcome.value:
            raise UserError(f"generators.{order.generator}{outcome.value['fault']}")
        yield outcome.value["problems"]


def _hash_question(problem: Document) -> str:
    return hashlib.sha256(problem["question"].encode()).hexdigest()


def _build_split(name: str, problems: Sequence[Document]) -> Callable[[], Documents]:
    ordered = sorted(problems, key=_hash_question)  # mixes the generators
    places = [
        f"Reasoning Gym, {row['generator']}, {name}, problem {number}"
        for number, row in enumerate(ordered, start=1)
    ]
    return lambda: Documents(ordered, places)


def _check_different(splits: Mapping[str, Sequence[Document]]) -> None:
    generators: dict[str, str] = {}
    for problem in itertools.chain(*splits.values()):
        other = generators.setdefault(problem["question"], problem["generator"])
        if other != problem["generator"]:
            raise UserError(
                f"generators: {other} and {problem['generator']} generate the same problem "
                f"{problem['question']!r:.80}; remove one of them, or change their settings"
            )


# In a worker process


def generate(order: Mapping[str, Any]) -> dict[str, Any]:
    """Generate the problems of an ``Order``; runs in a worker process.

    Returns:
        ``problems``, or ``fault``: an error message that continues after the generator's name.
    """
    try:
        return {"problems": _different_problems(Order(**order))}
    except UserError as error:
        return {"fault": str(error)}


def _different_problems(order: Order) -> list[Document]:
    problems: dict[str, Document] = {}
    repeats = 0
    if not order.count:
        return []
    for number in itertools.count():
        for dataset, entry in _generate_chunk(order, number):
            question = entry["question"].strip()
            if question in problems:
                repeats += 1
                if repeats >= max(_MAX_REPEATS, _MAX_REPEATS_EACH * len(problems)):
                    raise UserError(
                        f": found {len(problems):,} different problems, expected {order.count:,} "
                        "for pool and audit; lower dataset_kwargs.pool or .audit or the weight, or "
                        "choose settings that allow more"
                    )
                continue
            repeats = 0
            problems[question] = _build_problem(order, dataset, entry)
            if len(problems) == order.count:
                return list(problems.values())
    raise AssertionError  # the loop above never ends


def _generate_chunk(order: Order, number: int) -> Iterator[tuple[Any, Document]]:
    """Yield the problems of one seed, each with the data set that scores it."""
    from reasoning_gym import create_dataset

    seed = derive_key(PACKAGE, order.seed, order.generator, number) % 2**31
    try:
        dataset = create_dataset(order.generator, seed=seed, size=_CHUNK, **order.settings)
        for index in range(_CHUNK):
            yield dataset, dict(dataset[index])
    except Exception as error:
        raise UserError(
            f": invalid settings {json.dumps(order.settings)} ({_describe_error(error)})"
        ) from error


def _describe_error(error: Exception) -> str:
    """Describe an error; for an assertion without a message, show the asserted line."""
    if isinstance(error, AssertionError) and not str(error):
        return str(traceback.extract_tb(error.__traceback__)[-1].line)
    return describe_error(error)


def _build_problem(order: Order, dataset: Any, entry: Mapping[str, Any]) -> Document:
    """Build a problem's record of JSON values.

    Raises:
        UserError: the generator's scorer cannot judge with a record of JSON values.
    """
    answer = entry["answer"]
    if not isinstance(answer, str) or not answer.strip():
        raise UserError(
            ": its problems have no recorded answer, so its scorer cannot be checked; choose "
            "another generator"
        )
    stored = {
        "question": entry["question"],
        "answer": answer,
        "metadata": {key: value for key, value in entry["metadata"].items() if _is_json(value)},
    }
    restored = json.loads(json.dumps(stored))
    try:
        score = dataset.score_answer(answer, restored)
    except Exception as error:
        score = describe_error(error)
    if score != 1.0:
        raise UserError(
            ": its scorer rejects the recorded answer after the problem was stored as JSON "
            f"({score}); choose another generator"
        )
    gold = {"generator": order.generator, "settings": order.settings, **restored}
    return {
        "question": entry["question"].strip(),
        "answer": answer,
        "generator": order.generator,
        "gold": gold,
    }


def _is_json(value: Any) -> bool:
    try:
        json.dumps(value, allow_nan=False)
    except (TypeError, ValueError):
        return False
    return True
