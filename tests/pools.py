"""Evidence pools with any number of problems in each state."""

from __future__ import annotations

from gapft_harness.core.records import GREEDY, Evidence, Pool, Response, State
from gapft_harness.stages.selection.choosing import group_by_state


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


def build_pool(solved: int, recovered: int, missed: int = 2) -> Pool:
    counts: list[tuple[State, int]] = [("G", solved), ("S", recovered), ("U", missed)]
    return group_by_state(
        sorted(
            (build_evidence(f"{state}{i:03d}", state) for state, n in counts for i in range(n)),
            key=lambda e: e.problem_id,
        )
    )
