"""Write logs of responses with known verdicts, and search with them."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from gapft_harness.core.records import Problem
from gapft_harness.recipe.reading import check_recipe
from gapft_harness.recipe.sections import LogResponses
from gapft_harness.run_directory.directory import RunDirectory
from gapft_harness.run_directory.tables import read_judged
from gapft_harness.stages.pipeline import run_stages
from gapft_harness.stages.search.recorded import LogImport
from tests.kit.recording_run import LettersTask

#: Greedy, sample 0, sample 1: G, S by the second sample, U.
VERDICTS = [[1, 0, 1], [0, 0, 1], [0, 0, 0]]

#: A row of plain JSON lines.
Line = dict[str, Any]


def build_lines(verdicts: Sequence[Sequence[int]]) -> list[Line]:
    """Build a line for each verdict: the greedy response of a problem, then its samples."""
    return [
        {
            "prompt": f"pool {row * row}? {'aeiou'[row % 5]}",
            "index": "greedy" if column == 0 else column - 1,
            "text": f"pool {row}, {column}{'!' * (column % 3)}",
            "passed": verdict,
        }
        for row, of_problem in enumerate(verdicts)
        for column, verdict in enumerate(of_problem)
    ]


def write_lines(path: Path, lines: Sequence[Line | str]) -> str:
    """Write JSON lines, or strings as they are; return the path."""
    text = [line if isinstance(line, str) else json.dumps(line) for line in lines]
    path.write_text("".join(f"{line}\n" for line in text), "utf-8")
    return str(path)


def search_logs(
    task: LettersTask,
    model: Path,
    name: str,
    files: Sequence[str],
    k: int = 2,
    greedy: str | None = None,
    **choice: Any,
) -> RunDirectory:
    """Search the pool of the letters task with logs, in this process."""
    args = {"pretrained": str(model), "log": str(task.folder / "log")}
    choice |= {"pool": list(files), "greedy": {"pool": greedy} if greedy else {}}
    content = {
        "name": name, "data": {"task": "letters"}, "model": {"backend": "recording", "args": args},
        "search": {"k": k, "responses": choice}, "seeds": [13],
    }  # fmt: skip
    run = RunDirectory.create_or_open(task.folder / name, check_recipe(content, "test"))
    run_stages(task.context(run, ("pool",)), ["search"], lambda stage: None)
    return run


def get_states(run: RunDirectory) -> dict[str, str]:
    """Classify the pool by its verdicts; return the states by the name of a problem's record."""
    states = {}
    for problem_id, judged in read_judged(run.path / "pool/responses.parquet"):
        solved, *recovered = [response.verdict.passed for response in judged]
        name = problem_id.rpartition("-")[0]
        states[name] = "G" if solved else "S" if any(recovered) else "U"
    return states


def gather_responses(*files: str, **choice: Any) -> None:
    """Gather logs for the problems of ``VERDICTS`` with K = 2."""
    prompts = dict.fromkeys(line["prompt"] for line in build_lines(VERDICTS))
    problems = [Problem(f"pool{row}-x", prompt, "a") for row, prompt in enumerate(prompts)]
    LogImport(LogResponses(pool=files, **choice), problems, "pool", 2).write(Path(os.devnull))
