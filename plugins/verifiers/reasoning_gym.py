"""``reasoning_gym``: scores the answer of a response with its problem's own generator."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import version
from typing import Annotated, Any, Literal

from pydantic import Field

from gapft_harness.api import (
    Gold,
    Register,
    Verdict,
    WorkerPool,
    hookimpl,
)
from gapft_harness.core.extras import require_package
from gapft_harness.core.processes import Closing
from gapft_harness.verification.boxes import last_box
from gapft_harness.verification.pool import Count, Outcome, Seconds
from gapft_harness.verification.reasons import show_answer

_PACKAGE = "reasoning_gym"
#: Incremented when the reading of answers changes.
_RULES = 2
#: Fields of a gold, with their types.
_FIELDS = {"generator": str, "settings": dict, "question": str, "answer": str, "metadata": dict}

#: "Answer:", "Final answer:", "**Answer:**", "The answer is:".
_MARK = re.compile(r"\banswer(?: is)?[*_]{0,3}\s?:[*_]{0,3}", re.IGNORECASE)
#: Marks that may enclose an answer.
_WRAPPERS = ("***", "**", "__", "`", "$", "*", "_")
#: Maximum nesting of these marks.
_MAX_NESTING = 3


def extract_rest(text: str) -> str:
    """Return the text after the last "Answer:"; "" if there is none."""
    ends = [match.end() for match in _MARK.finditer(text)]
    return text[ends[-1] :] if ends else ""


def extract_marked(text: str) -> str:
    """Return the line after the last "Answer:"; else the last box; else an only line."""
    if rest := extract_rest(text).strip():
        line = rest.splitlines()[0]
        return last_box(line) or line
    lines = text.strip().splitlines()
    return last_box(text) or (lines[0] if len(lines) == 1 else "")


#: Generators whose scorers call ``eval`` or sympy's ``parse_expr`` with the answer.
EVALUATED = frozenset(("binary_matrix", "n_queens", "spiral_matrix", "string_insertion"))
PARSED = frozenset(
    (
        "countdown", "intermediate_integration", "polynomial_multiplication", "puzzle24",
        "simple_integration",
    )
)  # fmt: skip
_PLAIN_NODES = (
    ast.Expression, ast.BinOp, ast.operator, ast.UnaryOp, ast.unaryop, ast.List, ast.Tuple,
    ast.Constant, ast.Name, ast.Call, ast.expr_context,
)  # fmt: skip
#: What such an answer may call.
_FUNCTIONS = frozenset(
    (
        "sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh", "tanh", "exp", "log", "sqrt",
        "Integral",
    )
)  # fmt: skip


def is_plain(answer: str, gold: Mapping[str, Any]) -> bool:
    """Check that a scorer which evaluates an answer as Python only computes with it.

    Args:
        answer: the answer of a model.
        gold: the problem's; a problem of ``composite`` names the generator in its metadata.
    """
    generators = {gold["generator"], gold["metadata"].get("source_dataset")}
    is_parsed = not PARSED.isdisjoint(generators)
    is_evaluated = is_parsed or not EVALUATED.isdisjoint(generators)
    if not is_evaluated or answer == gold["answer"]:
        return True
    try:
        nodes = [*ast.walk(ast.parse(answer.strip(), mode="eval"))]
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return not is_parsed  # Python does not evaluate it either; sympy reads more forms
    for node in nodes:
        if isinstance(node, ast.Call) and (
            node.keywords or not isinstance(node.func, ast.Name) or node.func.id not in _FUNCTIONS
        ):
            return False
        is_text = isinstance(node, ast.Constant) and isinstance(node.value, str | bytes)
        if not isinstance(node, _PLAIN_NODES) or (is_text and is_parsed):
            return False
    return True


#: Functions that extract the answer from a response, by the name of the rule.
EXTRACTION_RULES: Mapping[str, Callable[[str], str]] = {
    "marked": extract_marked,
    "rest": extract_rest,
    "boxed": lambda text: last_box(text) or "",
    "whole": lambda text: text,
}


def remove_wrapping(text: str, recorded: str) -> str:
    """Remove emphasis marks and a final full stop, except those of the recorded answer."""
    text, recorded = text.strip(), recorded.strip()
    for _ in range(_MAX_NESTING):
        for mark in _WRAPPERS:
            inside = text[len(mark) : -len(mark)]
            if inside and text == f"{mark}{inside}{mark}" and not recorded.startswith(mark):
                text = inside.strip()
        if text.endswith(".") and not recorded.endswith("."):
            text = text[:-1].rstrip()
        if text.endswith("**") and "**" not in text[:-2] and not recorded.endswith("*"):
            text = text[:-2].rstrip()  # emphasis that began before "Answer:"
    return text


class ReasoningGym(Closing):
    """Passes a response if the generator's ``score_answer`` scores its answer at least ``pass_at``.

    Args:
        extract: rule that extracts the answer from a response, one of ``EXTRACTION_RULES``.
        pass_at: lowest score that passes.
        timeout_s: time limit for one answer in s; a slower scorer is killed.
        workers: maximum number of worker processes; default: one per core, at most 8.
        memory_bytes: address space of one worker in bytes.

    Raises:
        UserError: the package is missing.
    """

    def __init__(
        self,
        extract: Literal["marked", "rest", "boxed", "whole"] = "marked",
        pass_at: Annotated[float, Field(strict=True, gt=0, le=1)] = 1.0,
        timeout_s: Seconds = 10.0,
        workers: Count | None = None,
        memory_bytes: Count = 4 << 30,
    ) -> None:
        require_package(_PACKAGE)
        self._extract = EXTRACTION_RULES[extract]
        self._pass_at = pass_at
        self._pool = WorkerPool(
            f"{__name__}:score",
            workers=workers,
            timeout_s=timeout_s,
            memory_bytes=memory_bytes,
            setup=f"{__name__}:prepare",
        )

    def verify(self, responses: Sequence[str], golds: Sequence[Gold]) -> list[Verdict]:
        """Judge each response; ``golds`` are the field ``gold`` of a generated problem."""
        verdicts: dict[int, Verdict] = {}
        items: dict[int, list[Any]] = {}
        for row, (text, gold) in enumerate(zip(responses, golds, strict=True)):
            if fault := self.check_gold(gold):
                verdicts[row] = Verdict("error", fault)
            elif not (answer := remove_wrapping(self._extract(text), gold["answer"])):
                verdicts[row] = Verdict("fail", "no answer found")
            elif not is_plain(answer, gold):
                fault = "which the scorer would run as a program"
                verdicts[row] = Verdict("fail", f"{show_answer(answer)}, {fault}")
            else:
                items[row] = [answer, gold]
        outcomes = self._pool.map(list(items.values()))
        for (row, (answer, _)), outcome in zip(items.items(), outcomes, strict=True):
            verdicts[row] = self._build_verdict(outcome, answer)
        return [verdicts[row] for row in range(len(responses))]

    def check_gold(self, gold: Gold) -> str:
        """Describe the fault of a gold answer; return ``""`` if it is valid."""
        if not isinstance(gold, Mapping):
            return f"the gold answer is {type(gold).__name__}, expected an object"
        for name, kind in _FIELDS.items():
            if not isinstance(gold.get(name), kind):
                type_name = type(gold.get(name)).__name__
                return f"the gold answer's {name!r} is {type_name}, expected {kind.__name__}"
        if not gold["answer"].strip():
            return "the gold answer is empty"
        try:
            json.dumps(gold)
        except (TypeError, ValueError, RecursionError) as error:
            return f"the gold answer cannot be stored as JSON: {error}"
        return ""

    def answer(self, text: str) -> str | None:
        """Return the answer in a response."""
        return remove_wrapping(self._extract(text), "") or None

    def describe(self) -> dict[str, Any]:
        """Return the version of the rules and of the package."""
        return {"rules": _RULES, "reasoning-gym": version("reasoning-gym")}

    def close(self) -> None:
        """Stop the worker processes."""
        self._pool.close()

    def _build_verdict(self, outcome: Outcome, answer: str) -> Verdict:
        answer_text = show_answer(answer)
        if outcome.status == "timeout":
            return Verdict("timeout", f"{outcome.reason}; {answer_text}")
        if outcome.status != "done":
            return Verdict("error", f"score_answer failed: {outcome.reason}; {answer_text}")
        if outcome.value >= self._pass_at:
            return Verdict("pass")
        score_text = f"; scored {outcome.value:.4g}" if outcome.value > 0 else ""
        return Verdict("fail", f"{answer_text}{score_text}")


# In a worker process

_SCORERS: dict[str, Any] = {}


def prepare() -> None:
    """Import the package before the first answer's clock starts."""
    import reasoning_gym  # noqa: F401


def score(item: Sequence[Any]) -> float:
    """Score ``[answer, gold]`` with the generator that the gold names. Runs in a worker process."""
    from reasoning_gym import create_dataset

    answer, gold = item
    generator = gold["generator"]
    settings = gold["settings"]
    key = json.dumps([generator, settings], sort_keys=True)
    if key not in _SCORERS:
        _SCORERS[key] = create_dataset(generator, seed=0, size=1, **settings)
    entry = {name: gold[name] for name in ("question", "answer", "metadata")}
    return float(_SCORERS[key].score_answer(answer, entry))


@hookimpl
def register_verifiers(register: Register) -> None:
    """Register the verifier."""
    register("reasoning_gym", ReasoningGym)
