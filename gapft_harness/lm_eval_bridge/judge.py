"""Keep the verdicts on a task's responses; an exception of the verifier is a verdict.

Also holds ``Scores``: the metrics of one problem that lm-eval aggregates, and the verdicts that it
only logs.
"""

from __future__ import annotations

import logging
from collections.abc import ItemsView, Iterable, Mapping, Sequence
from typing import Any

from gapft_harness.core.identities import content_hash
from gapft_harness.core.records import Gold, Verdict
from gapft_harness.hooks.judge import Judge
from gapft_harness.sandbox import InfrastructureError

#: The key of the verdicts in a record of ``--log_samples``.
VERDICTS = "verdicts"

_logger = logging.getLogger(__name__)

_Pair = tuple[str, str]


class CachingJudge:
    """Keeps the verdicts of a judge, which depend only on the response and the gold.

    Attributes:
        judge: the judge.
    """

    def __init__(self, judge: Judge) -> None:
        """Begin without verdicts."""
        self.judge = judge
        self._known: dict[_Pair, Verdict] = {}
        self._last: tuple[Gold, str] = (None, content_hash(None))

    def has_verdicts(self, responses: Sequence[str], gold: Gold) -> bool:
        """Return whether all these responses to one problem were judged before."""
        key = self._hash_gold(gold)
        return all((text, key) in self._known for text in responses)

    def judge_new(self, pairs: Iterable[tuple[str, Gold]]) -> None:
        """Judge the (response, gold) pairs that are new, in one call of the verifier."""
        new: dict[_Pair, Gold] = {}
        for text, gold in pairs:
            key = (text, self._hash_gold(gold))
            if key not in self._known:
                new.setdefault(key, gold)
        texts, golds = [text for text, _ in new], list(new.values())
        try:
            verdicts = self.judge.verify(texts, golds)
        except InfrastructureError:
            raise  # a failure of the machine is not a verdict
        except Exception as error:
            # lm-eval would lose all responses of the run; count these as errors instead.
            _logger.exception("the verifier failed on %d responses", len(texts))
            reason = f"the verifier raised {type(error).__name__}: {error}"
            verdicts = [Verdict("error", reason)] * len(texts)
        self._known.update(zip(new, verdicts, strict=True))

    def verdicts(self, responses: Sequence[str], gold: Gold) -> list[Verdict]:
        """Return the verdicts on responses to one problem; judge those that are new."""
        self.judge_new((text, gold) for text in responses)
        key = self._hash_gold(gold)
        return [self._known[text, key] for text in responses]

    def read_answers(self, responses: Sequence[str], gold: Gold) -> list[str | None]:
        """Return the answers that the verifier reads in responses; None where it reads none."""
        try:
            return self.judge.read_answers(responses, [gold] * len(responses))
        except Exception:
            # As in ``judge_new``: a verifier's failure must not lose generated responses.
            _logger.exception("the verifier could not read %d answers", len(responses))
            return [None] * len(responses)

    def _hash_gold(self, gold: Gold) -> str:
        """Hash a gold, and keep the last hash: a gold may be large, and repeats in a row."""
        if gold is not self._last[0]:
            self._last = (gold, content_hash(gold))
        return self._last[1]


class Scores(dict[str, Any]):
    """A problem's metrics and the verdicts on its responses.

    lm-eval aggregates the values of ``items()``, but writes the whole mapping into the record of
    ``--log_samples``. Verdicts are not numbers, so ``items()`` leaves them out.
    """

    def __init__(
        self,
        metrics: Mapping[str, float],
        verdicts: Sequence[Verdict],
        answers: Sequence[str | None] = (),
    ) -> None:
        """Store metrics by name; verdicts, and answers if any, in the order of the responses."""
        counts = {f"verifier_{s}s": _count_status(verdicts, s) for s in ("timeout", "error")}
        super().__init__(metrics, **counts)
        self[VERDICTS] = [
            {"status": v.status, "reason": v.reason} | ({} if a is None else {"answer": a})
            for v, a in zip(verdicts, answers or [None] * len(verdicts), strict=True)
        ]

    def items(self) -> ItemsView[str, Any]:  # type: ignore[override]
        """Return the metrics without the verdicts."""
        return {key: self[key] for key in self if key != VERDICTS}.items()


def _count_status(verdicts: Sequence[Verdict], status: str) -> int:
    return sum(verdict.status == status for verdict in verdicts)
