"""Evidence pools with any number of problems in each state."""

from __future__ import annotations

from gapft_harness.core.records import GREEDY, Evidence, Response, State


def build_evidence(name: str, state: State, tokens: int = 4, index: int = 0) -> Evidence:
    response = None
    if state != "U":
        response = Response(
            name, GREEDY if state == "G" else index, "t", tuple(range(tokens)), "stop", 0
        )
    return Evidence(
        name,
        state,
        response,
        prompt_ids=(1, 2, 3),
        passing_samples=0 if state == "U" else 1,
        first_success=index if state == "S" else None,
    )
