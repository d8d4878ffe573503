"""Reasoning that a server returned apart from its response."""

from __future__ import annotations

from collections.abc import Sequence

from gapft_harness.core.errors import UserError
from gapft_harness.core.records import Evidence


def require_exact_reasoning(evidence: Sequence[Evidence]) -> None:
    """Refuse to train on reasoning whose token ids are unknown.

    Raises:
        UserError: a server returned reasoning apart from the text, and no token ids.
    """
    responses = [e.response for e in evidence if e.response is not None and e.response.reasoning]
    inexact = [r for r in responses if r.tokens_from != "generator"]
    if inexact:
        raise UserError(
            f"the server returned the reasoning of {len(inexact)} kept responses apart from their "
            f"text, and no token ids (first: {inexact[0].problem_id}), so the responses as "
            "generated are unknown; use a server that returns token ids (vLLM)"
        )
