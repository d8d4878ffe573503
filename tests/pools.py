"""Evidence pools with any number of problems in each state."""

from __future__ import annotations

from pathlib import Path

from gapft_harness.core.records import GREEDY, Evidence, Pool, Response, State
from gapft_harness.run_directory import layout
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


def list_pool_tables(run: Path) -> tuple[Path, Path, Path]:
    """Return the paths of a run's tables of the pool, as ``read_evidence`` takes them."""
    names = (layout.problems_path, layout.responses_path, layout.states_path)
    problems, responses, states = (run / name("pool") for name in names)
    return problems, responses, states
