"""What lm-eval gets of one problem: metrics to add up, and beside them what is only logged."""

from __future__ import annotations

from collections.abc import ItemsView, Mapping, Sequence
from typing import Any

from gapft_harness.core.records import Verdict

#: The key of a sample's record in ``--log_samples``.
VERDICTS = "verdicts"


class Scores(dict[str, Any]):
    """A problem's metrics, and the verdict on each of its responses.

    lm-eval adds up what ``items()`` gives, and writes all that the mapping holds into the record
    of ``--log_samples``. The verdicts are no number to add up: they are held and not given.
    """

    def __init__(
        self,
        metrics: Mapping[str, float],
        verdicts: Sequence[Verdict],
        answers: Sequence[str | None] = (),
    ) -> None:
        """Metrics by name; verdicts, and answers where any were read, in order of the responses."""
        counts = {f"verifier_{s}s": _count(verdicts, s) for s in ("timeout", "error")}
        super().__init__(metrics, **counts)
        self[VERDICTS] = [
            {"status": v.status, "reason": v.reason} | ({} if a is None else {"answer": a})
            for v, a in zip(verdicts, answers or [None] * len(verdicts), strict=True)
        ]

    def items(self) -> ItemsView[str, Any]:  # type: ignore[override]
        """The metrics alone."""
        return {key: self[key] for key in self if key != VERDICTS}.items()


def _count(verdicts: Sequence[Verdict], status: str) -> int:
    return sum(verdict.status == status for verdict in verdicts)
