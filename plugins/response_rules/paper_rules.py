"""The paper's two rules, both frozen before training (Section 3.3)."""

from __future__ import annotations

from collections.abc import Sequence

from gapft_harness.api import Register, Response, UserError, hookimpl


def shortest(passing: Sequence[Response]) -> Response:
    """Return the shortest verified sample in tokens; ties: lower index, then seed (logic, code).

    For an episode, the tokens of its final attempt count.
    """
    for response in passing:
        if response.tokens_from == "none":
            raise UserError(
                f"response rule 'shortest' counts tokens, but the backend returns no token ids "
                f"(problem {response.problem_id}); use evidence.keep: first"
            )
    return min(passing, key=lambda r: (len(r.token_ids), r.index, r.seed))


def first(passing: Sequence[Response]) -> Response:
    """Return the verified sample generated first, in the fixed generation order (MATH)."""
    return min(passing, key=lambda response: response.index)


@hookimpl
def register_response_rules(register: Register) -> None:
    """Register both rules."""
    register("shortest", shortest)
    register("first", first)
