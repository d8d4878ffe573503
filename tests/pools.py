"""Evidence pools with any number of problems in each state."""

from __future__ import annotations

from pathlib import Path

from gapft_harness.core.records import GREEDY, Evidence, Response, State
from gapft_harness.run_directory import layout


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


def list_pool_tables(run: Path) -> tuple[Path, Path, Path]:
    """Return the paths of a run's tables of the pool, as ``read_evidence`` takes them."""
    names = (layout.problems_path, layout.responses_path, layout.states_path)
    problems, responses, states = (run / name("pool") for name in names)
    return problems, responses, states
