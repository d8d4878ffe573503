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
from gapft_harness.run_directory.directory import RunDirectory, Split
from gapft_harness.run_directory.tables import read_judged
from gapft_harness.stages.pipeline import run_stages
from gapft_harness.stages.search.recorded import LogImport
from tests.kit.recording_run import LettersTask

#: Greedy, sample 0, sample 1: G, S by the second sample, U.
VERDICTS = [[1, 0, 1], [0, 0, 1], [0, 0, 0]]

#: A row of plain JSON lines.
Line = dict[str, Any]


def build_lines(verdicts: Sequence[Sequence[int]], split: str = "pool") -> list[Line]:
    """Build a line for each verdict: the greedy response of a problem, then its samples."""
    return [
        {
            "prompt": f"{split} {row * row}? {'aeiou'[row % 5]}",
            "index": "greedy" if column == 0 else column - 1,
            "text": f"{split} {row}, {column}{'!' * (column % 3)}",
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
    *stages: str,
    k: int = 2,
    splits: Sequence[Split] = ("pool",),
    greedy: str | None = None,
    keys: dict[str, Any] | None = None,
    **choice: Any,
) -> RunDirectory:
    """Search splits of the letters task with logs, in this process; then run stages.

    The files and the greedy log are those of the pool.
    """
    args = {"pretrained": str(model), "log": str(task.folder / "log")}
    choice |= {"pool": list(files), "greedy": {"pool": greedy} if greedy else {}}
    content = {
        "name": name, "data": {"task": "letters"}, "model": {"backend": "recording", "args": args},
        "search": {"k": k, "responses": choice}, "seeds": [13], **(keys or {}),
    }  # fmt: skip
    run = RunDirectory.create_or_open(task.folder / name, check_recipe(content, "test"))
    context = task.context(run, splits)
    run_stages(context, ["search", *stages], lambda stage: None)
    return run


def get_states(run: RunDirectory, split: str = "pool") -> dict[str, str]:
    """Classify each problem by its verdicts; return the states by the name in its record."""
    states = {}
    for problem_id, judged in read_judged(run.path / split / "responses.parquet"):
        solved, *recovered = [response.verdict.passed for response in judged]
        name = problem_id.rpartition("-")[0]
        states[name] = "G" if solved else "S" if any(recovered) else "U"
    return states


def gather_responses(*files: str, **choice: Any) -> None:
    """Gather logs for the problems of ``VERDICTS`` with K = 2."""
    prompts = dict.fromkeys(line["prompt"] for line in build_lines(VERDICTS))
    problems = [Problem(f"pool{row}-x", prompt, "a") for row, prompt in enumerate(prompts)]
    LogImport(LogResponses(pool=files, **choice), problems, "pool", 2).write(Path(os.devnull))
