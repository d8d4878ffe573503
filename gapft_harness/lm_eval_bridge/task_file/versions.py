"""The class of lm-eval's generation tasks, in 0.4 and in 0.5, which lays tasks out anew.

In 0.5 scorers hold a task's filters and metrics, data are read when they are first asked for, and
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
    """What a task of ours inherits, and the names that only one of the two versions has."""

    #: The template of promptsource, which 0.5 has no more.
    prompt: Any = None

    def __init__(self, config: dict[str, Any]) -> None:
        """Builds the task and opens its data."""
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
        """Loads the data with these arguments, as 0.4 does; 0.5 would take the configuration's."""
        if NEXT:
            self._config.dataset_kwargs = dict(dataset_kwargs or {})
        super().download(dataset_kwargs)

    def doc_to_target(self, doc: dict[str, Any], doc_to_target: Any = None) -> Any:
        """A problem's answer. A field stays as it is: 0.5 would make 7 of "007"."""
        named = self.config.doc_to_target if doc_to_target is None else doc_to_target
        if self.prompt is None and isinstance(named, str) and named in doc:
            return doc[named]
        return super().doc_to_target(doc, doc_to_target)

    def doc_to_prefix(self, doc: dict[str, Any]) -> Any:
        """What a response begins with."""
        return prefix(self, doc) if NEXT else super().doc_to_prefix(doc)

    def process_instances(self) -> None:
        """Scores what was generated (0.5), and keeps what is logged beside the metrics."""
        super().process_instances()
        for scorer in () if self.predicts_only else self.scorers:
            for one in self.instances:
                scores = self.process_results(one.doc, one.filtered_resps[scorer.name])
                scorer._reduced_docs[one.doc_id] = scores


def opened(task: Any) -> None:
    """Reads any task's data and renders one problem, which 0.4 does while it builds a task.

    Raises:
        Exception: whatever is wrong with them, of any type.
    """
    if NEXT:
        first = next(iter(task.eval_docs))
        task.doc_to_text(first)
        task.doc_to_target(first)


def index(manager: Any) -> dict[str, Any]:
    """Every name that a ``TaskManager`` knows, with where it is from."""
    return dict(manager._task_index if NEXT else manager.task_index)


def prefix(task: Any, doc: dict[str, Any]) -> Any:
    """What a response to a problem begins with, for any task of either version."""
    return task._resolve_field(doc, task.config.gen_prefix) if NEXT else task.doc_to_prefix(doc)


def one_result(results: Sequence[Any]) -> Any:
    """The responses to one problem, of ``process_results``: 0.4 nests those of several repeats."""
    return results[0] if len(results) == 1 else results


def ensembles(task: Any) -> list[Any]:
    """The filters of any task, each with its name and ``apply``."""
    return [scorer.filter for scorer in task.scorers] if NEXT else list(task._filters)


def scored(task: Any, instance: Any, filter: str) -> tuple[Any, dict[str, Any]]:
    """What any task makes of one response that a filter was applied to.

    Returns:
        What the filter left, and the task's metrics by name.
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
    """The module that holds ``apply_template``, by which tasks render."""
    if NEXT:
        from lm_eval.config import templates as module
    else:
        from lm_eval import utils as module
    return module


def environment() -> Any:
    """lm-eval's own environment of templates."""
    return templating()._jinja_env() if NEXT else templating().env
