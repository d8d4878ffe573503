"""Few-shot examples: drawn independently of order, and in a form that the verifier passes."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from gapft_harness.core.errors import UserError
from gapft_harness.core.records import Gold, Verdict
from gapft_harness.lm_eval_bridge.task_file.documents import Document, Documents, number_records
from gapft_harness.lm_eval_bridge.task_file.settings import describe_task

#: Number of examples that are judged, evenly spaced among all candidates.
_JUDGED = 16

#: Least share that must pass. A wrong form fails nearly always; single odd answers are normal.
_LEAST_PASSING = 0.9


class OrderFreeExamples:
    """Wraps a task's few-shot sampler: never draws the problem itself, and ignores the order."""

    def __init__(self, task: Any) -> None:
        """Replace the task's own sampler, which still draws the examples."""
        sampler = task.sampler
        self._inner: Any = sampler._inner if isinstance(sampler, OrderFreeExamples) else sampler
        self._document: Document = {}
        task.sampler = self

    def list_documents(self) -> list[Document]:
        """List the records that examples are drawn from."""
        return list(self._inner.fewshot_docs())

    def reseed(self, seed: int, document: Document) -> None:
        """Seed the draw for a problem."""
        self._inner.rnd = random.Random(seed)
        self._document = document

    def sample(self, n: int, **_: Any) -> Sequence[Document]:
        """Draw ``n`` examples for the problem.

        Raises:
            UserError: there are fewer than ``n`` examples besides the problem itself.
        """
        from lm_eval.api.samplers import FirstNSampler

        exact = isinstance(self._inner, FirstNSampler) or len(self._inner.df) <= n
        others = len(self._inner.df) - 1
        if exact:  # the problem itself may not be among them
            others = sum(row != self._document for row in self._inner.df)
        if n > others:
            raise UserError(
                f"num_fewshot: found {n}, but only {max(0, others)} examples are available besides "
                "the problem itself; lower num_fewshot or add examples"
            )
        # lm-eval draws one more than n, in case one is the problem itself.
        itself = self._document if isinstance(self._inner, FirstNSampler) or not exact else None
        drawn: Sequence[Document] = self._inner.sample(n=n, eval_doc=itself)
        return drawn


def has_listed_examples(task: Any) -> bool:
    """Return whether a ``GapTask`` lists its examples in ``fewshot_config.samples``."""
    return task.fewshot_cfg.split is None and task.fewshot_cfg.samples is not None


def find_examples(task: Any) -> Documents:
    """Return the records that a ``GapTask``'s few-shot examples are drawn from.

    Raises:
        UserError: the task names no split for them, or lists items that are not records.
    """
    config = task.config
    fewshot = task.fewshot_cfg
    if has_listed_examples(task):
        listed = fewshot.samples() if callable(fewshot.samples) else fewshot.samples
        where = f"{describe_task(config)}: fewshot_config.samples"
        if not isinstance(listed, list) or not all(isinstance(row, Mapping) for row in listed):
            raise UserError(f"{where}: found {listed!r:.60}, expected a list of records")
        return number_records(listed, where)
    split = fewshot.split or config.training_split
    if split is None:
        raise UserError(
            f"{describe_task(config)}: few-shot examples need the key fewshot_split or "
            "training_split (the split to draw them from); add one, or set num_fewshot to 0"
        )
    if fewshot.process_docs is not config.process_docs:
        raise UserError(
            f"{describe_task(config)}: fewshot_config.process_docs is not supported; expected the "
            "task's process_docs, or fewshot_config.samples"
        )
    documents: Documents = task.split(split)
    return documents


def check_examples(
    task: Any, judge: Callable[[Sequence[str], Sequence[Gold]], Sequence[Verdict]]
) -> None:
    """Check that the answers in few-shot examples pass the verifier as responses.

    A model imitates the form of its examples. If the verifier fails that form, every rate is about
    zero without any message.

    Args:
        task: a ``GapTask``.
        judge: judges (responses, golds).

    Raises:
        UserError: too many of the checked answers fail; the message shows one of them.
    """
    documents = find_examples(task)
    count = min(_JUDGED, len(documents))
    rows = [number * len(documents) // count for number in range(count)]
    answers = [_render_answer(task, documents[row]) for row in rows]
    verdicts = judge(answers, [task.gold(documents[row]) for row in rows])
    failed = [
        (row, text, v) for row, text, v in zip(rows, answers, verdicts, strict=True) if not v.passed
    ]
    if len(rows) - len(failed) >= _LEAST_PASSING * len(rows):
        return
    row, text, verdict = failed[0]
    raise UserError(
        f"{describe_task(task.config)}: the task's own verifier does not pass the answers of "
        f"few-shot examples: {len(failed)} of {len(rows)} checked, such as {text!r:.200} for "
        f"{documents.describe_place(row)} ({verdict.status}: {verdict.reason}); expected answers "
        "in the form of a response: set fewshot_config: {doc_to_target: ...}, or num_fewshot: 0"
    )


def _render_answer(task: Any, document: Document) -> str:
    target = task.doc_to_target(document, task.fewshot_cfg.doc_to_target)
    choices = task.fewshot_cfg.doc_to_choice
    if choices and isinstance(target, int):
        target = task.doc_to_choice(document, choices)[target]
    return str(target[0] if isinstance(target, list) and target else target)
