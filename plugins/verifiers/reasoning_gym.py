"""``reasoning_gym``: the answer that a response gives, scored by its problem's own generator."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import version
from importlib.util import find_spec
from typing import Any

from gapft_harness.api import (
    Closing,
    Gold,
    Outcome,
    RegisterVerifier,
    UserError,
    Verdict,
    WorkerPool,
    did_you_mean,
    hookimpl,
    last_box,
    once_each,
)

_PACKAGE = "reasoning_gym"
#: Counts up when ``extract`` comes to read otherwise.
_RULES = 1
_SHOWN = 60
#: What a gold has, and of which type.
_FIELDS = {"generator": str, "settings": dict, "question": str, "answer": str, "metadata": dict}

#: "Answer:", "Final answer:", "**Answer:**", "The answer is:".
_MARK = re.compile(r"\banswer(?: is)?[*_]{0,3}\s?:[*_]{0,3}", re.IGNORECASE)
#: What may stand around an answer.
_AROUND = ("***", "**", "__", "`", "$", "*", "_")
#: How many of these may stand within one another.
_NESTED = 3


def after_mark(text: str) -> str:
    """Return what follows the last "Answer:"; "" without one."""
    ends = [match.end() for match in _MARK.finditer(text)]
    return text[ends[-1] :] if ends else ""


def marked(text: str) -> str:
    """Return the line that the last "Answer:" begins; else the last box; else an only line."""
    if rest := after_mark(text).strip():
        line = rest.splitlines()[0]
        return last_box(line) or line
    lines = text.strip().splitlines()
    return last_box(text) or (lines[0] if len(lines) == 1 else "")


#: How an answer is taken out of a response, by the name of the rule.
RULES: Mapping[str, Callable[[str], str]] = {
    "marked": marked,
    "rest": after_mark,
    "boxed": lambda text: last_box(text) or "",
    "whole": lambda text: text,
}


def unwrapped(text: str, recorded: str) -> str:
    """Take marks of emphasis and a final full stop away, but those of the recorded answer."""
    text, recorded = text.strip(), recorded.strip()
    for _ in range(_NESTED):
        for mark in _AROUND:
            inside = text[len(mark) : -len(mark)]
            if inside and text == f"{mark}{inside}{mark}" and not recorded.startswith(mark):
                text = inside.strip()
        if text.endswith(".") and not recorded.endswith("."):
            text = text[:-1].rstrip()
        if text.endswith("**") and "**" not in text[:-2] and not recorded.endswith("*"):
            text = text[:-2].rstrip()  # emphasis that began before "Answer:"
    return text


class ReasoningGym(Closing):
    """A response passes if the generator's ``score_answer`` gives its answer the full score.

    Args:
        extract: how the answer is taken out of a response, of ``RULES``.
        pass_at: the least score that passes.
        timeout_s: seconds for one answer; a scorer that takes longer is killed.
        workers: most worker processes; default one a core, at most 8.
        memory_bytes: address space of one worker.

    Raises:
        UserError: the package is missing, or a parameter is out of range.
    """

    def __init__(
        self,
        extract: str = "marked",
        pass_at: float = 1.0,
        timeout_s: float = 10.0,
        workers: int | None = None,
        memory_bytes: int = 4 << 30,
    ) -> None:
        if find_spec(_PACKAGE) is None:
            raise UserError(
                "the verifier reasoning_gym needs the package reasoning-gym: pip install "
                "'gapft-harness[reasoning-gym]'"
            )
        if extract not in RULES:
            raise UserError(f"reasoning_gym: extract: {did_you_mean(str(extract), RULES)}")
        count = workers if workers is not None else min(8, os.cpu_count() or 1)
        numbers = {
            "pass_at": pass_at, "timeout_s": timeout_s, "workers": count,
            "memory_bytes": memory_bytes,
        }  # fmt: skip
        for key, value in numbers.items():
            if isinstance(value, bool) or not isinstance(value, int | float) or not value > 0:
                raise UserError(f"reasoning_gym: {key}: found {value!r}, expected more than 0")
        if pass_at > 1:
            raise UserError(f"reasoning_gym: pass_at: found {pass_at}, expected at most 1")
        self._extract = RULES[extract]
        self._pass_at = pass_at
        self._pool = WorkerPool(
            f"{__name__}:score",
            workers=int(count),
            timeout_s=timeout_s,
            memory_bytes=int(memory_bytes),
            setup=f"{__name__}:prepare",
        )

    def verify(self, responses: Sequence[str], golds: Sequence[Gold]) -> list[Verdict]:
        """Judge each response; ``golds`` are the field ``gold`` of a generated problem."""
        return once_each(self._judge, responses, golds)

    def check_gold(self, gold: Gold) -> str:
        """Say what is wrong with a gold answer, or ``""``."""
        if not isinstance(gold, Mapping):
            return f"the gold answer is {type(gold).__name__}, expected an object"
        for name, kind in _FIELDS.items():
            if not isinstance(gold.get(name), kind):
                found = type(gold.get(name)).__name__
                return f"the gold answer's {name!r} is {found}, expected {kind.__name__}"
        if not gold["answer"].strip():
            return "the gold answer is empty"
        try:
            json.dumps(gold)
        except (TypeError, ValueError, RecursionError) as error:
            return f"the gold answer cannot be stored as JSON: {error}"
        return ""

    def answer(self, text: str) -> str | None:
        """Return what a response gives as its answer."""
        return unwrapped(self._extract(text), "") or None

    def describe(self) -> dict[str, Any]:
        """Return the edition of the rules, and the package's version."""
        return {"rules": _RULES, "reasoning-gym": version("reasoning-gym")}

    def close(self) -> None:
        """End the worker processes."""
        self._pool.close()

    def _judge(self, responses: Sequence[str], golds: Sequence[Gold]) -> list[Verdict]:
        verdicts: dict[int, Verdict] = {}
        items: dict[int, list[Any]] = {}
        for row, (text, gold) in enumerate(zip(responses, golds, strict=True)):
            if fault := self.check_gold(gold):
                verdicts[row] = Verdict("error", fault)
            elif answer := unwrapped(self._extract(text), gold["answer"]):
                items[row] = [answer, gold]
            else:
                verdicts[row] = Verdict("fail", "no answer found")
        outcomes = self._pool.map(list(items.values()))
        for (row, (answer, _)), outcome in zip(items.items(), outcomes, strict=True):
            verdicts[row] = self._verdict(outcome, answer)
        return [verdicts[row] for row in range(len(responses))]

    def _verdict(self, outcome: Outcome, answer: str) -> Verdict:
        said = f"said {answer[:_SHOWN]}{'…' if len(answer) > _SHOWN else ''}"
        if outcome.status == "timeout":
            return Verdict("timeout", f"{outcome.reason}; {said}")
        if outcome.status != "done":
            return Verdict("error", f"score_answer failed: {outcome.reason}; {said}")
        if outcome.value >= self._pass_at:
            return Verdict("pass")
        partly = f"; scored {outcome.value:.4g}" if outcome.value > 0 else ""
        return Verdict("fail", f"{said}{partly}")


# In a worker process

_SCORERS: dict[str, Any] = {}


def prepare() -> None:
    """Import the package before the first answer's clock starts."""
    import reasoning_gym  # noqa: F401


def score(item: Sequence[Any]) -> float:
    """Score ``[answer, gold]`` by the generator that the gold names. Runs in a worker process."""
    from reasoning_gym import create_dataset

    answer, gold = item
    generator, settings = gold["generator"], gold["settings"]
    key = json.dumps([generator, settings], sort_keys=True)
    if key not in _SCORERS:
        _SCORERS[key] = create_dataset(generator, seed=0, size=1, **settings)
    entry = {name: gold[name] for name in ("question", "answer", "metadata")}
    return float(_SCORERS[key].score_answer(answer, entry))


@hookimpl
def register_verifiers(register: RegisterVerifier) -> None:
    """Register it."""
    register("reasoning_gym", ReasoningGym, own_workers=True)
