"""A policy's tasks as lm-eval YAML files with their problems, in one folder.

The problems are the same for every policy. What is the policy's own is ``p``, its probability of a
problem's right response: selectors that match on difficulty read it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from random import Random
from types import MappingProxyType
from typing import Any, Final

import yaml

from controlled_study import tokens
from controlled_study.pretrain import FACTS, right_probabilities
from controlled_study.problems import COIN, Part, Problem, distinct, spread
from controlled_study.sizes import SIZES, Size
from gapft_harness.core.errors import UserError

MAIN: Final = "main"
#: The runs of a policy, with the verifier of each. All but the first are nulls.
RUNS: Final = MappingProxyType({MAIN: "exact_box", "permuted": "box_class", "luck": "exact_box"})
#: Classes of answers in the run ``permuted``.
CLASSES: Final = 4


def task_name(run: str) -> str:
    """The task of a run, as a recipe names it."""
    return f"controlled_{run}"


def problems_of(run: str, part: Part, size: Size) -> list[Problem]:
    """The problems of a run's pool or audit."""
    null = size.null_pool if part == "pool" else size.null_audit
    if run == "luck":
        return distinct(part, COIN, COIN.lengths[0], null)
    whole = size.pool if part == "pool" else size.audit
    return spread(part, whole if run == MAIN else null, size.cells)


def answers_of(run: str, part: Part, problems: Sequence[Problem]) -> list[str]:
    """What counts as right: the answer, or in the run ``permuted`` a class that tells nothing.

    There the classes are dealt out evenly within each family and length, at random.
    """
    if run != "permuted":
        return [problem.answer for problem in problems]
    found = [""] * len(problems)
    cells: dict[tuple[str, int], list[int]] = {}
    for index, problem in enumerate(problems):
        cells.setdefault((problem.family, problem.length), []).append(index)
    for (family, length), members in cells.items():
        Random(f"permuted:{part}:{family}:{length}").shuffle(members)
        for place, index in enumerate(members):
            found[index] = str(place % CLASSES)
    return found


def write_tasks(policy: Path, folder: Path) -> None:
    """Writes the tasks of all runs of a policy.

    Raises:
        UserError: the folder is not of a policy.
    """
    if not (policy / FACTS).exists():
        raise UserError(f"{policy}: holds no {FACTS}; expected a folder of `pretrain`")
    size = SIZES[json.loads((policy / FACTS).read_text("utf-8"))["size"]]
    folder.mkdir(parents=True, exist_ok=True)
    parts: tuple[Part, ...] = ("pool", "audit")
    for run, verifier in RUNS.items():
        files = {part: f"{run}-{part}.jsonl" for part in parts}
        for part in parts:
            problems = problems_of(run, part, size)
            answers = answers_of(run, part, problems)
            chances = right_probabilities(policy, problems)
            lines = map(_record, problems, answers, chances)
            _write_lines(folder / files[part], lines)
        content = yaml.safe_dump(_task(run, files, verifier), sort_keys=False)
        kind = "class: !function gapft_harness.lm_eval_bridge.task.GapTask\n"
        (folder / f"{task_name(run)}.yaml").write_text(kind + content, "utf-8")


def _record(problem: Problem, answer: str, chance: float) -> dict[str, Any]:
    solution = problem.response()
    return {
        "id": problem.id,
        "question": problem.question,
        "answer": answer,
        "family": problem.family,
        "group": problem.group,
        "solution": solution,
        "solution_ids": tokens.response_ids(solution),
        "p": chance,
    }


def _task(run: str, files: dict[Part, str], verifier: str) -> dict[str, Any]:
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
                "verifier": verifier,
                "keep": "first",
                "id": "id",
                "content": ["question"],
                "gold": "answer",
            },
        },
    }


def _write_lines(path: Path, lines: Iterable[dict[str, Any]]) -> None:
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), "utf-8")
