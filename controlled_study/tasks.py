"""The tasks of the study as lm-eval YAML files with their problems, in one folder."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from random import Random
from types import MappingProxyType
from typing import Any, Final

import yaml

from controlled_study import tokens
from controlled_study.families import BY_NAME, COIN, Problem
from controlled_study.sizes import Size
from controlled_study.splits import Kind, Part, distinct, spread

#: The runs of a seed, with the kind of policy that each searches. All but the first are nulls.
RUNS: Final = MappingProxyType[str, Kind](
    {"main": "mixed", "permuted": "mixed", "luck": "mixed", "mastery": "mastery"}
)
MAIN: Final = "main"


def task_name(run: str) -> str:
    """The task of a run, as a recipe names it."""
    return f"controlled_{run}"


def record(problem: Problem, answer: str) -> dict[str, Any]:
    """A problem as a line of its task's data, with the answer that counts as right."""
    return {
        "id": f"{problem.cell}-{problem.digest[:12]}",
        "question": problem.question,
        "answer": answer,
        "family": problem.family,
        "length": problem.length,
        "solution": problem.worked,
        "solution_ids": tokens.response_ids(problem),
    }


def permuted(problems: Sequence[Problem], part: Part) -> list[str]:
    """The problems' answers, exchanged at random among those of one cell, so that nothing tells.

    Where answers are many, no problem keeps its own. Where they are few, that would tell which
    answer is not wanted; there the problems of each answer get all answers equally often, as
    nearly as their numbers allow, and so one in so many keeps its own.

    Raises:
        ValueError: half of a cell's problems or more have one of many answers.
    """
    cells: dict[str, list[int]] = {}
    for index, problem in enumerate(problems):
        cells.setdefault(problem.cell, []).append(index)
    found = [""] * len(problems)
    for cell, members in cells.items():
        rng = Random(f"permuted:{part}:{cell}")
        rng.shuffle(members)
        answers = [problems[index].answer for index in members]
        counts = Counter(answers)
        rank = {
            answer: place for place, answer in enumerate(rng.sample(sorted(counts), len(counts)))
        }
        order = sorted(members, key=lambda index: rank[problems[index].answer])
        if BY_NAME[problems[members[0]].family].answers:
            given = _dealt(counts, rng)
        else:
            # Equal answers are neighbours, so this many places on there is none of the same.
            shift = max(counts.values())
            if 2 * shift > len(members):
                raise ValueError(f"{cell}: {shift} of {len(members)} problems have one answer")
            given = [problems[index].answer for index in (*order[shift:], *order[:shift])]
        for index, answer in zip(order, given, strict=True):
            found[index] = answer
    return found


def _dealt(counts: Counter[str], rng: Random) -> list[str]:
    """All answers in turn, in random order: any stretch has each equally often but for one.

    So it is if their numbers differ by one at most; the commoner ones come first.
    """
    left = counts.copy()
    order = sorted(rng.sample(sorted(counts), len(counts)), key=counts.__getitem__, reverse=True)
    given = []
    while turn := [answer for answer in order if left[answer] > 0]:
        given += turn
        left.subtract(turn)
    return given


def records(run: str, part: Part, size: Size) -> list[dict[str, Any]]:
    """The pool or the audit of a run."""
    null = size.null_pool if part == "pool" else size.null_audit
    if run == "luck":
        problems = distinct(part, (COIN, COIN.lengths[0]), null)
    else:
        whole = size.pool if part == "pool" else size.audit
        problems = spread(part, whole if run == MAIN else null)
    answers = permuted(problems, part) if run == "permuted" else [p.answer for p in problems]
    return [record(p, answer) for p, answer in zip(problems, answers, strict=True)]


def write_tasks(folder: Path, size: Size) -> None:
    """Writes the tasks of all runs; the same size always gives the same bytes."""
    folder.mkdir(parents=True, exist_ok=True)
    for run in RUNS:
        parts: tuple[Part, ...] = ("pool", "audit")
        files = {part: f"{run}-{part}.jsonl" for part in parts}
        for part in parts:
            _write_lines(folder / files[part], records(run, part, size))
        content = yaml.safe_dump(_task(run, files), sort_keys=False)
        kind = "class: !function gapft_harness.lm_eval_bridge.task.GapTask\n"
        (folder / f"{task_name(run)}.yaml").write_text(kind + content, "utf-8")


def _task(run: str, files: dict[Part, str]) -> dict[str, Any]:
    return {
        "task": task_name(run),
        "dataset_path": "json",
        "dataset_kwargs": {"data_files": dict(files)},
        "output_type": "generate_until",
        "training_split": "pool",
        "test_split": "audit",
        "doc_to_text": "{{question}}",
        "doc_to_target": "{{answer}}",
        "generation_kwargs": {
            "do_sample": False,
            "max_gen_toks": tokens.MAX_NEW_TOKENS,
            "until": [],
        },
        "metadata": {
            "version": 1.0,
            "gapft": {
                "summary": f"controlled study, {run}",
                "verifier": "exact_box",
                "keep": "first",
                "id": "id",
                "content": ["question"],
                "gold": "answer",
            },
        },
    }


def _write_lines(path: Path, lines: Iterable[dict[str, Any]]) -> None:
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), "utf-8")
