"""Verifiers for any lm-eval YAML: the metric ``gapft_verified``, the filter ``gapft_answer``.

pyproject.toml registers both in the entry-point groups ``lm_eval.metrics`` and ``lm_eval.filters``.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from typing import Any

from lm_eval.api import metrics as _metrics  # noqa: F401  # the aggregation "mean"
from lm_eval.api.registry import register_metric

from gapft_harness.core.errors import UserError, refuse_unknown
from gapft_harness.lm_eval_bridge.task_file.versions import IS_NEXT

_KEYS = ("verifier", "params")
#: The result of lm-eval's own filters for a response without an answer.
_NO_ANSWER = "[invalid]"


def gapft_verified(
    references: Sequence[Any],
    predictions: Sequence[Any],
    *,
    verifier: str = "",
    params: Mapping[str, Any] | None = None,
    multiple_targets: bool = False,
    **unknown: Any,
) -> float | list[float]:
    """Judge the responses to one problem with a verifier.

    A timeout or an error of the verifier counts as wrong, as in bundled tasks.

    Args:
        references: the problem's answer as text, or a list of acceptable answers.
        predictions: one response; in lm_eval 0.5 all repeats.
        verifier: the verifier's name.
        params: its parameters.
        multiple_targets: passed by lm_eval 0.5; unused, since the answer's type shows it.
        **unknown: unknown keys of the YAML; refused.

    Returns:
        1.0 or 0.0; in lm_eval 0.5 one number for each response.

    Raises:
        UserError: unknown verifier or parameter, several responses where lm_eval 0.4 expects
            one, or a problem without an answer.
    """
    where = "metric gapft_verified"
    refuse_unknown(unknown, _KEYS, where)
    if not all(isinstance(text, str) for text in predictions):
        raise UserError(f"{where}: found several responses, expected one; add filter take_first")
    judge = _load_judge(where, verifier, json.dumps(params or {}))
    answer = references[0]
    golds = (
        [str(target) for target in answer] if isinstance(answer, list | tuple) else [str(answer)]
    )
    if not golds:
        raise UserError(
            f"{where}: found an empty list of answers in doc_to_target, expected one or more; drop "
            "the problem, e.g. with process_docs"
        )
    verdicts = [judge.verdicts(list(predictions), gold) for gold in golds]
    passed = [
        float(any(verdict.passed for verdict in problem_verdicts))
        for problem_verdicts in zip(*verdicts, strict=True)
    ]
    return passed if IS_NEXT else passed[0]


_reduction = {"reduction": "pass@k"} if IS_NEXT else {}
register_metric(
    metric="gapft_verified",
    higher_is_better=True,
    output_type="generate_until",
    aggregation="mean",
    **_reduction,
)(gapft_verified)


class AnswerFilter:
    """Replaces each response by the answer that a verifier reads in it (a letter, a last box)."""

    def __init__(
        self, verifier: str = "", params: Mapping[str, Any] | None = None, **unknown: Any
    ) -> None:
        """Load the verifier from its name and parameters in the YAML.

        Raises:
            UserError: unknown verifier or parameter, or a verifier that reads no answers.
        """
        from gapft_harness.hooks.checked import find_answer_reader

        where = "filter gapft_answer"
        refuse_unknown(unknown, _KEYS, where)
        reader = find_answer_reader(_load_named_verifier(where, verifier, json.dumps(params or {})))
        if reader is None:
            raise UserError(f"{where}: verifier {verifier!r} cannot extract answers")
        self._reader = reader

    def apply(self, resps: Iterable[Sequence[str]], docs: Sequence[Any]) -> list[list[str]]:
        """Return one answer for each response, ``[invalid]`` where none is found."""
        return [
            [_NO_ANSWER if answer is None else answer for answer in self._read_answers(list(texts))]
            for texts in resps
        ]

    def _read_answers(self, texts: list[str]) -> list[str | None]:
        return self._reader.read(texts, [None] * len(texts))


@cache
def _load_judge(where: str, name: str, params: str) -> Any:
    from gapft_harness.lm_eval_bridge.judge import CachingJudge

    return CachingJudge(_load_named_verifier(where, name, params))


@cache
def _load_named_verifier(where: str, name: str, params: str) -> Any:
    from gapft_harness import load_verifier

    if not name:
        raise UserError(f"{where}: the key 'verifier' is missing, e.g. verifier: boxed_math")
    try:
        return load_verifier(name, **json.loads(params))
    except UserError as error:
        raise error.with_place(where) from error
