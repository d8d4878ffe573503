"""Check that gold labels and the search that they follow have the same targets."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from gapft_harness import api
from gapft_harness.api import layout
from gapft_harness.core.golds import gold_answer, is_answer_alone
from gapft_harness.recipe.sections import Training
from gapft_harness.run_directory.directory import RunDirectory
from gapft_harness.run_directory.tables import read_problems
from gapft_harness.training.plan import budget


def count_kept_slots(
    run_path: Path, conditions: Mapping[str, api.Condition], search: api.Arm, gold: api.Arm
) -> int:
    """Count targets of a search that contain more than the answer; gold labels keep their slots.

    Args:
        run_path: the run directory.
        conditions: the conditions of the run by name.
        search: the arm whose targets gold labels use.
        gold: the arm of gold labels.
    """
    if not conditions[gold.condition].params.get("answer_only", True):
        return 0
    golds = _read_golds(run_path)
    chosen_responses = {
        (example.problem_id, example.response_index)
        for example in api.read_examples(run_path / layout.selection_path(search))
        if example.state == "S"
    }
    names = ("problem_id", "index", "text")
    columns = api.read_columns(run_path / layout.responses_path("pool"), names)
    return sum(
        (problem, index) in chosen_responses and not is_answer_alone(text, golds[problem])
        for problem, index, text in zip(*(columns[name] for name in names), strict=True)
    )


def compare_training_sets(run: RunDirectory, search: api.Arm, gold: api.Arm) -> Iterator[str]:
    """Report properties that two training sets must share but do not.

    Args:
        run: the run.
        search: the arm whose targets are used.
        gold: the arm of gold labels.
    """
    search_examples, gold_examples = (
        api.read_examples(run.path / layout.selection_path(arm)) for arm in (search, gold)
    )
    training = run.recipe.resolve_training(search.condition)
    golds = _read_golds(run.path)
    for fault in find_differences(search_examples, gold_examples, golds, training):
        yield (
            f"arms {search.name} and {gold.name} {fault}; expected the same targets and as many "
            "problems of each gold answer. If sequences are truncated, raise training.max_length"
        )


def find_differences(
    search: Sequence[api.Example],
    gold: Sequence[api.Example],
    golds: Mapping[str, Any],
    training: Training,
) -> Iterator[str]:
    """Find properties that two training sets must share but do not.

    Args:
        search: the examples whose targets are used.
        gold: the examples of gold labels.
        golds: gold answers by problem id.
        training: the training settings, which decide the budget.

    Yields:
        Ends of sentences, such as ``differ in ...``.
    """
    targets = [Counter((e.response_ids, e.ended) for e in examples) for examples in (search, gold)]
    if targets[0] != targets[1]:
        n_more = sum((targets[1] - targets[0]).values())
        yield f"differ in {n_more} of {len(gold)} target strings"
    classes = [Counter(_read_answer(golds[e.problem_id]) for e in es) for es in (search, gold)]
    for answer in sorted({*classes[0], *classes[1]}):
        if classes[0][answer] != classes[1][answer]:
            yield (
                f"have {classes[0][answer]} and {classes[1][answer]} problems of the gold answer "
                f"{answer}"
            )
            break
    search_budget, gold_budget = (budget(examples, training) for examples in (search, gold))
    for key in ("supervised_tokens", "exposures", "steps"):
        a = getattr(search_budget, key)
        b = getattr(gold_budget, key)
        if a != b:
            yield f"differ in {key}: {a} and {b}"
    example_by_problem = {e.problem_id: e for e in search}
    for e in gold:
        source_example = example_by_problem.get(e.origin)
        if e.state == "G" and e.origin == e.problem_id:
            continue  # replay that both share
        if source_example is None or (
            source_example.response_ids, source_example.response_index,
        ) != (e.response_ids, e.response_index):  # fmt: skip
            yield (
                f"have a target that the search does not have: problem {e.problem_id}, "
                f"origin {e.origin}"
            )
            break


def _read_golds(run_path: Path) -> dict[str, Any]:
    """Read the gold answers of the pool by problem id."""
    problems = read_problems(run_path / layout.problems_path("pool"))
    return {problem.id: problem.gold for problem, _ in problems}


def _read_answer(gold: Any) -> str:
    """Return the gold answer as a text, without the options of its problem."""
    answer = gold_answer(gold)
    return json.dumps(gold, sort_keys=True) if answer is None else answer
