"""Replace the hub's metric ``code_eval`` by the sandbox, for lm-eval's own code tasks.

``humaneval``, ``mbpp`` and similar tasks load ``code_eval`` by name. The original downloads a
script that runs a model's programs in a separate process without confinement, so lm-eval requires
``--confirm_run_unsafe_code``. After ``install_code_eval`` the name refers to an object with the
same inputs and outputs that runs programs in the sandbox; if no tier is available, it runs nothing.
"""

from __future__ import annotations

import functools
import json
import secrets
import sys
from collections.abc import Iterable, Sequence
from fractions import Fraction
from types import ModuleType
from typing import Any

import numpy as np

from gapft_harness.analysis.pass_at_k import mean_pass_at_k
from gapft_harness.autoload import call_after_import
from gapft_harness.core.thoughts import remove_thoughts
from gapft_harness.sandbox import Limits, Program, Result, Sandbox, Test

#: Modules outside the standard library that the tests of these tasks import.
_PRELOAD = ("numpy",)

#: Like ``code_eval``, with empty globals, so that ``__name__`` is not ``__main__``. Only the caller
#: knows the returned word, and the function returns it only if the program reached its end.
_RUN = """
def reaches_its_end(source, word):
    exec(source, {})
    return word
"""
_PROGRAM = Program(_RUN, "function", "reaches_its_end")


class CodeEval:
    """Replaces ``evaluate.load("code_eval")``."""

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
        """Run each candidate program followed by its task's test, as ``code_eval`` does.

        Reasoning blocks (``core/thoughts.py``) are removed from a candidate first.

        Args:
            predictions: for each task, the candidate programs.
            references: for each task, the program that tests them.
            k: values of k for Pass@k; a k larger than some task's number of candidates is skipped.
            num_workers: unused: the sandbox has one worker for each core.
            timeout: seconds of CPU time, and of wall time.

        Returns:
            ``pass@k`` for each k, unbiased, averaged over tasks; and each candidate's outcome by
            task.

        Raises:
            UserError: no tier of the sandbox is available on this machine; nothing was run.
            InfrastructureError: the sandbox failed repeatedly; such a failure is not a verdict.
        """
        if len(predictions) != len(references):
            raise ValueError(
                f"code_eval: found {len(predictions)} lists of candidates and {len(references)} "
                "tests; expected equal numbers"
            )
        if any(isinstance(candidates, str) for candidates in predictions):
            raise TypeError("code_eval: expected a list of candidates for each task, found text")
        programs = [
            f"{remove_thoughts(candidate)}\n{test}"
            for candidates, test in zip(predictions, references, strict=True)
            for candidate in candidates
        ]
        judged = iter(self._judge(programs, timeout))
        results: dict[int, list[tuple[int, dict[str, Any]]]] = {}
        for task, candidates in enumerate(predictions):
            results[task] = [
                (
                    number,
                    {"task_id": task, "completion_id": number, **_format_outcome(next(judged))},
                )
                for number in range(len(candidates))
            ]
        counts = [
            (len(outcomes), sum(outcome["passed"] for _, outcome in outcomes))
            for outcomes in results.values()
        ]
        fewest = min((total for total, _ in counts), default=0)
        return {
            f"pass@{size}": _mean_pass_at_k(counts, size) for size in k if size <= fewest
        }, results

    def _judge(self, programs: Sequence[str], timeout: float) -> list[Result]:
        if timeout not in self._sandboxes:
            limits = Limits(cpu_s=timeout, wall_s=timeout)
            sandbox = Sandbox(preload=_PRELOAD, limits=limits)
            sandbox.start()
            message = f"code_eval: programs run in the sandbox, tier {sandbox.tier}"
            print(message, file=sys.stderr)
            self._sandboxes[timeout] = sandbox
        items = []
        for source in programs:
            word = json.dumps(secrets.token_hex(16))
            items.append((_PROGRAM, [Test(f"{json.dumps(source)}\n{word}", word)]))
        return self._sandboxes[timeout].judge(items)


def _format_outcome(result: Result) -> dict[str, Any]:
    (test,) = result.tests
    names = {"accepted": "passed", "time_limit": "timed out"}
    description = names.get(result.verdict, f"failed: {test.reason or result.verdict}")
    return {"passed": result.verdict == "accepted", "result": description}


def _mean_pass_at_k(counts: Sequence[tuple[int, int]], k: int) -> float:
    """Average Pass@k over tasks, which may have different numbers of candidates."""
    rates = [mean_pass_at_k(np.array([passed]), total, k) for total, passed in counts]
    return float(sum(rates, Fraction(0)) / len(rates))


@functools.cache
def install_code_eval() -> None:
    """Make ``evaluate.load("code_eval")`` return a ``CodeEval``, and allow tasks that use only it.

    lm-eval refuses a task marked ``unsafe_code`` unless the user confirms it. A task is allowed if
    all its metrics are functions of modules that loaded this ``code_eval``. ``evaluate``, which
    imports torch and all pipelines of transformers, is imported only by the tasks that need it.
    """
    from lm_eval.api.task import ConfigurableTask

    construct = ConfigurableTask.__init__

    @functools.wraps(construct)
    def construct_task(self: Any, *args: Any, **options: Any) -> None:
        construct(self, *args, **options)
        if getattr(self, "UNSAFE_CODE", False) and uses_only_sandbox(self):
            self.UNSAFE_CODE = False

    ConfigurableTask.__init__ = construct_task
    call_after_import("evaluate", _replace_load)


def _replace_load(evaluate: ModuleType) -> None:
    """Make ``evaluate.load("code_eval")`` return a ``CodeEval``."""
    load = evaluate.load
    ours = CodeEval()

    @functools.wraps(load)
    def load_metric(path: str, *args: Any, **options: Any) -> Any:
        return ours if path == "code_eval" else load(path, *args, **options)

    evaluate.load = load_metric  # type: ignore[attr-defined]


def uses_only_sandbox(task: Any) -> bool:
    """Return whether a task runs programs only through the ``CodeEval`` of this module."""
    metrics = [entry.get("metric") for entry in task.config.metric_list or []]
    return (
        bool(metrics)
        and task.config.process_results is None
        and all(map(is_sandboxed_metric, metrics))
    )


def is_sandboxed_metric(metric: Any) -> bool:
    """Return whether a metric is a function of a module that loaded a ``CodeEval``."""
    names = getattr(metric, "__globals__", {})
    return any(isinstance(value, CodeEval) for value in names.values())
