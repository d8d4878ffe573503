"""``task_metric``: judges with the own metric of any stock lm-eval generation task."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from gapft_harness.api import Gold, Register, Verdict, hookimpl

#: Number of documents on which the metric is tried before anything is generated.
_MAX_TRIALS = 3


def _find_gold_fault(gold: Gold) -> str:
    if isinstance(gold, Mapping):
        return ""
    return f"the gold is {type(gold).__name__}, expected the task's document"


class TaskMetric:
    """Passes a response if the task's own metric scores it 1, or at least ``pass_at``.

    Args:
        task: a task's name, as in ``lm_eval --tasks``.
        metric: ``exact_match`` or, with the filter, ``exact_match,strict-match``; default: the
            first metric of the task's list under its first filter.
        include_path: a folder of task YAML files besides lm-eval's own.
        pass_at: for a metric that is not 0 or 1: the lowest value that passes.

    Raises:
        UserError: unknown task, metric or filter; or a task that does not generate text.
    """

    def __init__(
        self,
        task: str,
        metric: str | None = None,
        include_path: str | None = None,
        pass_at: float | None = None,
    ) -> None:
        from gapft_harness.lm_eval_bridge.stock import StockTask

        self._task = StockTask(task, metric, include_path, pass_at)
        self._trial_count = 0

    def verify(self, responses: Sequence[str], golds: Sequence[Gold]) -> list[Verdict]:
        """Judge each response; each gold is the task's document, a JSON object."""
        verdicts: dict[int, Verdict] = {
            i: Verdict("error", fault)
            for i, gold in enumerate(golds)
            if (fault := _find_gold_fault(gold))
        }
        rest = [i for i in range(len(golds)) if i not in verdicts]
        scored = self._task.judge([golds[i] for i in rest], [responses[i] for i in rest])
        verdicts.update(zip(rest, scored, strict=True))
        return [verdicts[i] for i in range(len(golds))]

    def check_gold(self, gold: Gold) -> str:
        """Describe the fault of a gold answer; for the first ones, try the metric too."""
        if not isinstance(gold, Mapping):
            return _find_gold_fault(gold)
        self._trial_count += 1
        return self._task.describe_grading(gold) if self._trial_count <= _MAX_TRIALS else ""

    def has_answer(self, text: str, gold: Gold) -> bool:
        """Return whether the task's filter finds an answer in a response."""
        return isinstance(gold, Mapping) and self._task.has_answer(gold, text)

    def describe(self) -> dict[str, str]:
        """Return the deciding metric and filter, and a hash of the task and its code."""
        return {
            "judge": self._task.judge_description,
            "task_sha256": self._task.compute_fingerprint(),
        }


@hookimpl
def register_verifiers(register: Register) -> None:
    """Register the verifier."""
    register("task_metric", TaskMetric)
