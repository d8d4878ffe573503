"""One interface to lm-eval's generation tasks of 0.4 and of 0.5, which has a new task class.

In 0.5, scorers hold a task's filters and metrics, data are read at the first use, and
``process_results`` gets a flat list of responses.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lm_eval.api import task as _tasks

#: Whether this is lm-eval 0.5 or later.
NEXT = hasattr(_tasks, "GenerateTask")
_Base: Any = _tasks.GenerateTask if NEXT else _tasks.ConfigurableTask


class GenerationTask(_Base):  # type: ignore[misc]
    """The base class of ``GapTask``, with the names that only one of the versions has."""

    #: The template of promptsource, which 0.5 removed.
    prompt: Any = None

    def __init__(self, config: dict[str, Any]) -> None:
        """Build the task and opens its data."""
        self.DATASET_PATH = config.get("dataset_path")
        super().__init__(config=config)
        if NEXT:
            self.fewshot_cfg = self._fewshot_cfg
        opened(self)

    @property
    def predicts_only(self) -> bool:
        """Whether ``--predict_only`` was given: nothing is judged."""
        return bool(self._has_metric("bypass") if NEXT else "bypass" in self._metric_fn_list)

    def download(self, dataset_kwargs: dict[str, Any] | None = None, **_: Any) -> None:
        """Load the data with these arguments as 0.4 does; 0.5 would use the configuration's."""
        if NEXT:
            self._config.dataset_kwargs = dict(dataset_kwargs or {})
        super().download(dataset_kwargs)

    def doc_to_target(self, doc: dict[str, Any], doc_to_target: Any = None) -> Any:
        """Return a problem's answer. A field is unchanged: 0.5 would convert "007" to 7."""
        named = self.config.doc_to_target if doc_to_target is None else doc_to_target
        if self.prompt is None and isinstance(named, str) and named in doc:
            return doc[named]
        return super().doc_to_target(doc, doc_to_target)

    def doc_to_prefix(self, doc: dict[str, Any]) -> Any:
        """Return the text that a response begins with."""
        return prefix(self, doc) if NEXT else super().doc_to_prefix(doc)

    def process_instances(self) -> None:
        """Score the responses (0.5), and keep the values that are only logged."""
        super().process_instances()
        for scorer in () if self.predicts_only else self.scorers:
            for one in self.instances:
                scores = self.process_results(one.doc, one.filtered_resps[scorer.name])
                scorer._reduced_docs[one.doc_id] = scores


def opened(task: Any) -> None:
    """Read a task's data and render one problem, as 0.4 does while it builds a task.

    Raises:
        Exception: any error of the data or the templates.
    """
    if NEXT:
        first = next(iter(task.eval_docs))
        task.doc_to_text(first)
        task.doc_to_target(first)


def index(manager: Any) -> dict[str, Any]:
    """Return the entry of every task name that a ``TaskManager`` knows."""
    return dict(manager._task_index if NEXT else manager.task_index)


def prefix(task: Any, doc: dict[str, Any]) -> Any:
    """Return the text that a response to a problem begins with, in either version."""
    return task._resolve_field(doc, task.config.gen_prefix) if NEXT else task.doc_to_prefix(doc)


def one_result(results: Sequence[Any]) -> Any:
    """Return the responses in ``results`` of ``process_results``; 0.4 nests several repeats."""
    return results[0] if len(results) == 1 else results


def ensembles(task: Any) -> list[Any]:
    """List a task's filters, each with ``name`` and ``apply``."""
    return [scorer.filter for scorer in task.scorers] if NEXT else list(task._filters)


def scored(task: Any, instance: Any, filter: str) -> tuple[Any, dict[str, Any]]:
    """Score one response after a filter was applied to it.

    Returns:
        The filtered response, and the task's metrics by name.
    """
    found = instance.filtered_resps[filter]
    if not NEXT:
        return found, dict(task.process_results(instance.doc, [found]))
    results = task.process_results(instance.doc, list(found))
    if results is None:
        instance.target = task.doc_to_target(instance.doc)
        scorer = next(each for each in task.scorers if each.name == filter)
        results = scorer.score_doc(0, [instance]).scores
    alone = {
        name: value[0] if isinstance(value, list) and len(value) == 1 else value
        for name, value in results.items()
    }
    return one_result(found), alone


def templating() -> Any:
    """Return lm-eval's module with ``apply_template``, which renders templates."""
    if NEXT:
        from lm_eval.config import templates as module
    else:
        from lm_eval import utils as module
    return module


def environment() -> Any:
    """Return lm-eval's Jinja environment."""
    return templating()._jinja_env() if NEXT else templating().env
