"""Problems of a pool with one verified sample."""

from __future__ import annotations

from gapft_harness.core.records import Evidence, Response, State


def build_evidence(name: str, state: State, tokens: int = 4) -> Evidence:
    response = Response(name, 0, "t", tuple(range(tokens)), "stop", 0)
    return Evidence(name, state, response, prompt_ids=(1, 2, 3), passing_samples=1, first_success=0)
