"""``task_metric``: any stock lm-eval generation task judges by its own metric."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from gapft_harness.api import Gold, RegisterVerifier, Verdict, hookimpl, once_each


class TaskMetric:
    """A response passes if the task's own metric gives it 1.

    Args:
        task: a task's name, as ``lm_eval --tasks`` takes it.
        metric: ``exact_match`` or, with the filter, ``exact_match,strict-match``; default the
            first metric of the task's list under its first filter.
        include_path: a folder of task YAML files besides lm-eval's own.

    Raises:
        UserError: no such task, metric or filter; or a task that does not generate text.
    """

    def __init__(
        self, task: str, metric: str | None = None, include_path: str | None = None
    ) -> None:
        from gapft_harness.api import StockTask

        self._task = StockTask(task, metric, include_path)

    def verify(self, responses: Sequence[str], golds: Sequence[Gold]) -> list[Verdict]:
        """Judges each response; each gold is the task's document, a JSON object."""
        return once_each(self._judge, responses, golds)

    def check_gold(self, gold: Gold) -> str:
        """What is wrong with a gold answer, or ``""``."""
        if isinstance(gold, Mapping):
            return ""
        return f"the gold is {type(gold).__name__}, expected the task's document"

    def _judge(self, responses: Sequence[str], golds: Sequence[Gold]) -> list[Verdict]:
        verdicts: dict[int, Verdict] = {
            i: Verdict("error", fault)
            for i, gold in enumerate(golds)
            if (fault := self.check_gold(gold))
        }
        rest = [i for i in range(len(golds)) if i not in verdicts]
        scored = self._task.verdicts([golds[i] for i in rest], [responses[i] for i in rest])
        verdicts.update(zip(rest, scored, strict=True))
        return [verdicts[i] for i in range(len(golds))]


@hookimpl
def register_verifiers(register: RegisterVerifier) -> None:
    """Registers it."""
    register("task_metric", TaskMetric)
