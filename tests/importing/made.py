"""Write files of responses with known verdicts, and import them into runs."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from gapft_harness.core.records import Problem
from gapft_harness.importing.gathering import Gathering
from gapft_harness.importing.job import import_split
from gapft_harness.importing.rows import ImportChoice
from gapft_harness.lm_eval_bridge.samplers.retokenizer import Retokenizer
from gapft_harness.recipe.reading import check_recipe
from gapft_harness.run_directory.directory import RunDirectory
from gapft_harness.run_directory.tables import read_states
from gapft_harness.stages.generation.stored_files import DraftResponses
from gapft_harness.stages.pipeline import run_stages
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


def import_and_run(
    task: LettersTask,
    model: Path,
    name: str,
    files: Sequence[str],
    *stages: str,
    k: int = 2,
    split: str = "pool",
    keys: dict[str, Any] | None = None,
    **choice: Any,
) -> RunDirectory:
    """Import files into a run of the letters task in this process, then run stages."""
    args = {"pretrained": str(model), "log": str(task.folder / "log")}
    content = {
        "name": name, "data": {"task": "letters"}, "model": {"backend": "recording", "args": args},
        "search": {"k": k}, "seeds": [13], **(keys or {}),
    }  # fmt: skip
    run = RunDirectory.create_or_open(task.folder / name, check_recipe(content, "test"))
    arguments = ImportChoice(files, **choice).to_arguments()
    context = task.context(run, (split,))
    importing = replace(context, import_search=partial(import_split, choice=arguments))
    run_stages(importing, ["search"], lambda stage: None)
    run_stages(context, stages, lambda stage: None)
    return run


def get_states(run: RunDirectory, split: str = "pool") -> dict[str, str]:
    """Read each problem's state by the name in its record."""
    table = run.path / split / "states.parquet"
    return {states.problem_id.rpartition("-")[0]: states.state for states in read_states(table)}


def gather_responses(
    tokenizer: Retokenizer,
    choice: ImportChoice,
    progress: Callable[[int], None] = lambda done: None,
) -> None:
    """Gather files for the problems of ``VERDICTS`` with K = 2."""
    prompts = dict.fromkeys(line["prompt"] for line in build_lines(VERDICTS))
    problems = [Problem(f"pool{row}-x", prompt, "a") for row, prompt in enumerate(prompts)]
    Gathering(choice, problems, "pool", 2).gather(DraftResponses().add, tokenizer, progress)
