"""Judge responses in batches, each distinct (response, gold) pair once; an exception is a verdict.

Also holds ``Scores``: the metrics of one problem that lm-eval aggregates, and the verdicts that it
only logs.
"""

from __future__ import annotations

import logging
from collections.abc import ItemsView, Iterable, Mapping, Sequence
from typing import Any

from gapft_harness.core.identities import content_hash
from gapft_harness.core.records import Gold, Verdict
from gapft_harness.hooks.checked import find_answer_reader
from gapft_harness.hooks.protocols import Verifier
from gapft_harness.sandbox import InfrastructureError
from gapft_harness.verification.judging import VerdictAndAnswer, check_golds, judge_unique

#: The key of the verdicts in a record of ``--log_samples``.
VERDICTS = "verdicts"

_logger = logging.getLogger(__name__)

_Pair = tuple[str, str]


class CachingJudge:
    """A verifier that caches its verdicts, which depend only on the response and the gold."""

    def __init__(self, verifier: Verifier) -> None:
        """Wrap a verifier."""
        self._verifier = verifier
        self._known: dict[_Pair, VerdictAndAnswer] = {}
        self._last: tuple[Gold, str] = (None, content_hash(None))

    def has_verdicts(self, responses: Sequence[str], gold: Gold) -> bool:
        """Return whether all these responses to one problem were judged before."""
        key = self._hash_gold(gold)
        return all((text, key) in self._known for text in responses)

    def check_golds(self, golds: Iterable[tuple[Gold, str]]) -> None:
        """Check (gold, place) pairs with the verifier's ``check_gold``, if it has one.

        Raises:
            UserError: a gold answer is invalid; the message names its place.
        """
        check_golds(self._verifier, golds)

    def judge(self, responses: Sequence[str], golds: Sequence[Gold]) -> list[Verdict]:
        """Judge texts without the cache; they need not be a model's responses."""
        return [verdict for verdict, _ in self._judge_pairs(list(responses), list(golds))]

    def judge_new(self, pairs: Iterable[tuple[str, Gold]]) -> None:
        """Judge the (response, gold) pairs that are new, in one call of the verifier."""
        new: dict[_Pair, Gold] = {}
        for text, gold in pairs:
            key = (text, self._hash_gold(gold))
            if key not in self._known:
                new.setdefault(key, gold)
        if not new:
            return
        texts, golds = [text for text, _ in new], list(new.values())
        self._known.update(zip(new, self._judge_pairs(texts, golds), strict=True))

    def verdicts(self, responses: Sequence[str], gold: Gold) -> list[Verdict]:
        """Return the verdicts on responses to one problem; judge those that are new."""
        self.judge_new((text, gold) for text in responses)
        key = self._hash_gold(gold)
        return [self._known[text, key][0] for text in responses]

    def read_answers(self, responses: Sequence[str], gold: Gold) -> list[str | None]:
        """Return the answers that the verifier reads in responses; None where it reads none."""
        if (reader := find_answer_reader(self._verifier)) is None:
            return [None] * len(responses)
        if reader.has_combined_method:
            self.judge_new((text, gold) for text in responses)
            return [self._known[text, self._hash_gold(gold)][1] for text in responses]
        try:
            return reader.read(responses, [gold] * len(responses))
        except Exception:
            # As in ``_judge_pairs``: a verifier's failure must not lose generated responses.
            _logger.exception("the verifier could not read %d answers", len(responses))
            return [None] * len(responses)

    def _hash_gold(self, gold: Gold) -> str:
        """Hash a gold, and keep the last hash: a gold may be large, and repeats in a row."""
        if gold is not self._last[0]:
            self._last = (gold, content_hash(gold))
        return self._last[1]

    def _judge_pairs(self, texts: list[str], golds: list[Gold]) -> list[VerdictAndAnswer]:
        try:
            return judge_unique(self._verifier, texts, golds)
        except InfrastructureError:
            raise  # a failure of the machine is not a verdict
        except Exception as error:
            # lm-eval would lose all responses of the run; count these as errors instead.
            _logger.exception("the verifier failed on %d responses", len(texts))
            reason = f"the verifier raised {type(error).__name__}: {error}"
            return [(Verdict("error", reason), None)] * len(texts)


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
