"""The hub's metric ``code_eval``, answered by the sandbox, for lm-eval's own code tasks.

``humaneval``, ``mbpp`` and their kin load ``code_eval`` by name. It downloads a script that runs
what a model wrote in a process of its own, without confinement, and lm-eval wants to be told
``--confirm_run_unsafe_code``. After ``answer`` the name stands for an object with the same inputs
and outputs that runs programs in the sandbox; where no tier holds, nothing is run.
"""

from __future__ import annotations

import functools
import json
import secrets
import sys
from collections.abc import Iterable, Sequence
from fractions import Fraction
from typing import Any

import numpy as np

from gapft_harness.analysis.pass_at_k import mean_pass_at_k
from gapft_harness.core.thoughts import remove_thoughts
from gapft_harness.sandbox import Limits, Program, Result, Sandbox, Test

#: What other modules than the standard library's tests of these tasks import.
_PRELOAD = ("numpy",)

#: As ``code_eval`` does: with empty globals, so that ``__name__`` is not ``__main__``. What the
#: function gives back is known to the caller alone, and given only where the end was reached.
_RUN = """
def reaches_its_end(source, word):
    exec(source, {})
    return word
"""
_PROGRAM = Program(_RUN, "function", "reaches_its_end")


class CodeEval:
    """Takes the place of ``evaluate.load("code_eval")``."""

    def __init__(self) -> None:
        self._sandboxes: dict[float, Sandbox] = {}

    def compute(
        self,
        *,
        predictions: Sequence[Sequence[str]],
        references: Sequence[str],
        k: Iterable[int] = (1, 10, 100),
        num_workers: int = 4,
        timeout: float = 3.0,
    ) -> tuple[dict[str, float], dict[int, list[tuple[int, dict[str, Any]]]]]:
        """Runs each candidate with its task's test below it, as ``code_eval`` does.

        Reasoning blocks (``core/thoughts.py``) are taken out of a candidate before it is run.

        Args:
            predictions: of each task, the candidate programs.
            references: of each task, the program that tests them.
            k: of Pass@k; those beyond the candidates of some task are left out.
            num_workers: is not used: the sandbox has a worker for each core.
            timeout: seconds, of the CPU's time and of waiting.

        Returns:
            ``pass@k`` by k, unbiased and mean over tasks; and by task each candidate's outcome.

        Raises:
            UserError: no tier of the sandbox holds here; nothing was run.
            InfrastructureError: the sandbox failed repeatedly; no verdict is made up for that.
        """
        if len(predictions) != len(references):
            raise ValueError(
                f"code_eval: {len(predictions)} lists of candidates and {len(references)} tests"
            )
        if any(isinstance(candidates, str) for candidates in predictions):
            raise TypeError("code_eval: expected a list of candidates for each task, found a text")
        programs = [
            f"{remove_thoughts(candidate)}\n{test}"
            for candidates, test in zip(predictions, references, strict=True)
            for candidate in candidates
        ]
        judged = iter(self._judge(programs, timeout))
        results: dict[int, list[tuple[int, dict[str, Any]]]] = {}
        for task, candidates in enumerate(predictions):
            results[task] = [
                (number, {"task_id": task, "completion_id": number, **_outcome(next(judged))})
                for number in range(len(candidates))
            ]
        counts = [
            (len(each), sum(outcome["passed"] for _, outcome in each)) for each in results.values()
        ]
        drawn = min((total for total, _ in counts), default=0)
        return {f"pass@{one}": _mean(counts, one) for one in k if one <= drawn}, results

    def _judge(self, programs: Sequence[str], timeout: float) -> list[Result]:
        if timeout not in self._sandboxes:
            limits = Limits(cpu_s=timeout, wall_s=timeout)
            sandbox = Sandbox(preload=_PRELOAD, limits=limits)
            sandbox.start()
            told = f"code_eval: programs run in the sandbox, tier {sandbox.tier}"
            print(told, file=sys.stderr)
            self._sandboxes[timeout] = sandbox
        items = []
        for source in programs:
            word = json.dumps(secrets.token_hex(16))
            items.append((_PROGRAM, [Test(f"{json.dumps(source)}\n{word}", word)]))
        return self._sandboxes[timeout].judge(items)


def _outcome(result: Result) -> dict[str, Any]:
    (test,) = result.tests
    said = {"accepted": "passed", "time_limit": "timed out"}
    told = said.get(result.verdict, f"failed: {test.reason or result.verdict}")
    return {"passed": result.verdict == "accepted", "result": told}


def _mean(counts: Sequence[tuple[int, int]], k: int) -> float:
    """Pass@k, mean over tasks, which may have different numbers of candidates."""
    rates = [mean_pass_at_k(np.array([passed]), total, k) for total, passed in counts]
    return float(sum(rates, Fraction(0)) / len(rates))


def answer() -> None:
    """Lets ``evaluate.load("code_eval")`` give ours, and tasks that rest on it alone be run.

    lm-eval refuses a task that is marked ``unsafe_code`` unless the user confirms it. A task all of
    whose metrics are functions of a module that loaded ``code_eval`` from here is not refused.
    """
    import evaluate
    from lm_eval.api.task import ConfigurableTask

    if getattr(evaluate.load, "answers_code_eval", False):
        return
    load, construct = evaluate.load, ConfigurableTask.__init__
    ours = CodeEval()

    @functools.wraps(load)
    def loads(path: str, *args: Any, **options: Any) -> Any:
        return ours if path == "code_eval" else load(path, *args, **options)

    @functools.wraps(construct)
    def constructs(self: Any, *args: Any, **options: Any) -> None:
        construct(self, *args, **options)
        if getattr(self, "UNSAFE_CODE", False) and rests_on_ours(self):
            self.UNSAFE_CODE = False

    loads.answers_code_eval = True  # type: ignore[attr-defined]
    evaluate.load = loads
    ConfigurableTask.__init__ = constructs


def rests_on_ours(task: Any) -> bool:
    """Whether all that runs programs for a task is the ``code_eval`` of this module."""
    metrics = [entry.get("metric") for entry in task.config.metric_list or []]
    return bool(metrics) and task.config.process_results is None and all(map(is_ours, metrics))


def is_ours(metric: Any) -> bool:
    """Whether a metric is a function of a module that loaded ``code_eval`` from here."""
    names = getattr(metric, "__globals__", {})
    return any(isinstance(value, CodeEval) for value in names.values())
