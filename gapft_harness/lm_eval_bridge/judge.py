"""Verdicts in the stock ``lm_eval``: an exception of the verifier is one, and they are logged."""

from __future__ import annotations

import logging
from collections.abc import ItemsView, Mapping, Sequence
from typing import Any

from gapft_harness.core.records import Gold, Verdict
from gapft_harness.hooks.judge import Judge, VerdictAndAnswer
from gapft_harness.sandbox import InfrastructureError

#: The key of the verdicts in a record of ``--log_samples``.
VERDICTS = "verdicts"

_logger = logging.getLogger(__name__)


def judge_pairs(
    judge: Judge, texts: Sequence[str], golds: Sequence[Gold]
) -> list[VerdictAndAnswer]:
    """Judge responses and read their answers; an exception of the verifier is a verdict.

    lm-eval would lose all responses of the run.

    Raises:
        InfrastructureError: the machine failed, which is not a verdict.
    """
    try:
        verdicts = judge.verify(texts, golds)
    except InfrastructureError:
        raise
    except Exception as error:
        _logger.exception("the verifier failed on %d responses", len(texts))
        reason = f"the verifier raised {type(error).__name__}: {error}"
        verdicts = [Verdict("error", reason)] * len(texts)
    answers: list[str | None] = [None] * len(texts)
    try:
        answers = judge.read_answers(texts, golds)
    except Exception:
        _logger.exception("the verifier could not read %d answers", len(texts))
    return list(zip(verdicts, answers, strict=True))


class Scores(dict[str, Any]):
    """A problem's metrics and the verdicts on its responses.

    lm-eval aggregates the values of ``items()``, but writes the whole mapping into the record of
    ``--log_samples``. Verdicts are not numbers, so ``items()`` leaves them out.
    """

    def __init__(
        self,
        metrics: Mapping[str, float],
        verdicts: Sequence[Verdict],
        answers: Sequence[str | None],
    ) -> None:
        """Store metrics by name; verdicts and answers in the order of the responses."""
        counts = {
            f"verifier_{status}s": sum(verdict.status == status for verdict in verdicts)
            for status in ("timeout", "error")
        }
        super().__init__(metrics, **counts)
        self[VERDICTS] = [
            {"status": v.status, "reason": v.reason} | ({} if a is None else {"answer": a})
            for v, a in zip(verdicts, answers, strict=True)
        ]

    def items(self) -> ItemsView[str, Any]:  # type: ignore[override]
        """Return the metrics without the verdicts."""
        return {key: self[key] for key in self if key != VERDICTS}.items()
