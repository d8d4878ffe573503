"""One interface to lm-eval's generation tasks of 0.4 and of 0.5, which has a new task class.

In 0.5, scorers hold a task's filters and metrics, data are read at the first use, and
``process_results`` gets a flat list of responses.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lm_eval.api import task as _tasks

#: Whether this is lm-eval 0.5 or later.
IS_NEXT = hasattr(_tasks, "GenerateTask")
_Base: Any = _tasks.GenerateTask if IS_NEXT else _tasks.ConfigurableTask


class GenerationTask(_Base):  # type: ignore[misc]
    """The base class of ``GapTask``, with the names that only one of the versions has."""

    #: The template of promptsource, which 0.5 removed.
    prompt: Any = None

    def __init__(self, config: dict[str, Any]) -> None:
        """Build the task and opens its data."""
        self.DATASET_PATH = config.get("dataset_path")
        super().__init__(config=config)
        if IS_NEXT:
            self.fewshot_cfg = self._fewshot_cfg
        open_data(self)

    @property
    def is_predict_only(self) -> bool:
        """Whether ``--predict_only`` was given: nothing is judged."""
        return bool(self._has_metric("bypass") if IS_NEXT else "bypass" in self._metric_fn_list)

    def download(self, dataset_kwargs: dict[str, Any] | None = None, **_: Any) -> None:
        """Load the data with these arguments as 0.4 does; 0.5 would use the configuration's."""
        if IS_NEXT:
            self._config.dataset_kwargs = dict(dataset_kwargs or {})
        super().download(dataset_kwargs)

    def doc_to_target(self, doc: dict[str, Any], doc_to_target: Any = None) -> Any:
        """Return a problem's answer. A field is unchanged: 0.5 would convert "007" to 7."""
        spec = self.config.doc_to_target if doc_to_target is None else doc_to_target
        if self.prompt is None and isinstance(spec, str) and spec in doc:
            return doc[spec]
        return super().doc_to_target(doc, doc_to_target)

    def doc_to_prefix(self, doc: dict[str, Any]) -> Any:
        """Return the text that a response begins with."""
        return find_prefix(self, doc) if IS_NEXT else super().doc_to_prefix(doc)

    def process_instances(self) -> None:
        """Score the responses (0.5), and keep the values that are only logged."""
        super().process_instances()
        for scorer in () if self.is_predict_only else self.scorers:
            for instance in self.instances:
                scores = self.process_results(instance.doc, instance.filtered_resps[scorer.name])
                scorer._reduced_docs[instance.doc_id] = scores


def open_data(task: Any) -> None:
    """Read a task's data and render one problem, as 0.4 does while it builds a task.

    Raises:
        Exception: any error of the data or the templates.
    """
    if IS_NEXT:
        first = next(iter(task.eval_docs))
        task.doc_to_text(first)
        task.doc_to_target(first)


def build_index(manager: Any) -> dict[str, Any]:
    """Return the entry of every task name that a ``TaskManager`` knows."""
    return dict(manager._task_index if IS_NEXT else manager.task_index)


def find_prefix(task: Any, doc: dict[str, Any]) -> Any:
    """Return the text that a response to a problem begins with, in either version."""
    return task._resolve_field(doc, task.config.gen_prefix) if IS_NEXT else task.doc_to_prefix(doc)


def unwrap_single(results: Sequence[Any]) -> Any:
    """Return the responses in ``results`` of ``process_results``; 0.4 nests several repeats."""
    return results[0] if len(results) == 1 else results


def list_filters(task: Any) -> list[Any]:
    """List a task's filters, each with ``name`` and ``apply``."""
    return [scorer.filter for scorer in task.scorers] if IS_NEXT else list(task._filters)


def score_response(task: Any, instance: Any, filter: str) -> tuple[Any, dict[str, Any]]:
    """Score one response after a filter was applied to it.

    Returns:
        The filtered response, and the task's metrics by name.
    """
    filtered = instance.filtered_resps[filter]
    if not IS_NEXT:
        return filtered, dict(task.process_results(instance.doc, [filtered]))
    results = task.process_results(instance.doc, list(filtered))
    if results is None:
        instance.target = task.doc_to_target(instance.doc)
        scorer = next(candidate for candidate in task.scorers if candidate.name == filter)
        results = scorer.score_doc(0, [instance]).scores
    metrics = {
        name: value[0] if isinstance(value, list) and len(value) == 1 else value
        for name, value in results.items()
    }
    return unwrap_single(filtered), metrics


def import_templating() -> Any:
    """Return lm-eval's module with ``apply_template``, which renders templates."""
    if IS_NEXT:
        from lm_eval.config import templates as module
    else:
        from lm_eval import utils as module
    return module


def find_environment() -> Any:
    """Return lm-eval's Jinja environment."""
    return import_templating()._jinja_env() if IS_NEXT else import_templating().env
