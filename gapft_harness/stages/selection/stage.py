"""Selection: each condition's selector fills the matched budget (Section 3.3, Equation 7).

From the pool's tables a step makes ``selections/ARM.parquet`` for every arm, another its budget.
Budgets that must match are compared before anything is trained.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, Literal

from gapft_harness.core.files import write_json
from gapft_harness.core.records import Arm, Budget, Pool
from gapft_harness.hooks.manager import load_plugins
from gapft_harness.recipe.recipe import Recipe
from gapft_harness.recipe.sections import Training
from gapft_harness.run_directory.evidence import read_evidence
from gapft_harness.run_directory.tables import read_examples, write_examples
from gapft_harness.stages.selection.budgets import (
    group_by_budget,
    require_matched,
    require_similar_tokens,
)
from gapft_harness.stages.selection.choosing import build_pool, build_training_set
from gapft_harness.training.ledger import hash_sequences
from gapft_harness.training.plan import budget, build_sequences


def list_replicate_warnings(recipe: Recipe) -> list[str]:
    """Describe conditions with a ``replicate`` that do not repeat another condition."""
    pairs = recipe.map_replicates()
    return [
        f"conditions.{name}.replicate is {condition.replicate}, but no other condition differs "
        f"from {name} only in this key, so nothing is compared; add one, or remove the key"
        for name, condition in recipe.conditions.items()
        if condition.replicate and name not in {*pairs, *pairs.values()}
    ]


def select(
    output: Path,
    problems: Path,
    responses: Path,
    states: Path,
    *,
    selector: str,
    params: Mapping[str, Any],
    n: int,
    replay: int,
    seed: int,
    k: int | None,
    context: Literal["conversation", "problem"],
    max_gen_toks: int,
    arguments: Mapping[str, Any],
    condition: str,
    plugin_files: Sequence[str],
) -> dict[str, Any]:
    """Select an arm's training set: the function of a step.

    Args:
        output: the table to write.
        problems: the pool's problems.
        responses: its responses.
        states: its states.
        selector: the selector's name.
        params: its parameters, with the contents of files.
        n: the slots of a matched selector, without replay.
        replay: the number of solved problems that all matched arms of a seed share.
        seed: the seed of the draw.
        k: the number of samples that define the states; None for all.
        context: the prompt of an episode's final attempt.
        max_gen_toks: the limit of a response's length.
        arguments: the selector's parameters.
        condition: the condition, for messages.
        plugin_files: files given by ``--plugin``.

    Returns:
        Whether the budget is ``matched``; ``ends_unknown``, the examples whose generator did not
        report how they ended; and the ``unverified`` ones, if there are any.

    Raises:
        UserError: the pool is too small for n or for the replay.
        PluginError: the selector broke its contract.
    """
    entry = load_plugins(plugin_files).get("selector", selector)
    tables = (problems, responses, states)
    stamps = tuple((s.st_ino, s.st_size, s.st_mtime_ns) for s in map(Path.stat, tables))
    pool = _read_pool(tables, context, max_gen_toks, k, stamps)
    examples, facts = build_training_set(
        partial(entry.value, **arguments), entry, pool, n, replay, Arm(condition, seed)
    )
    write_examples(output, examples)
    return facts


@lru_cache(maxsize=1)
def _read_pool(
    tables: tuple[Path, Path, Path],
    context: Literal["conversation", "problem"],
    max_gen_toks: int,
    k: int | None,
    stamps: tuple[tuple[int, int, int], ...],
) -> Pool:
    """Read the evidence of a pool; ``stamps`` reveal that a table was replaced."""
    return build_pool(read_evidence(*tables, context, max_gen_toks, k))


def count_budget(output: Path, selection: Path, **settings: Any) -> dict[str, Any]:
    """Count the budget of a training: the function of a step.

    Args:
        output: the JSON file to write.
        selection: the training set.
        settings: the settings of training that decide its sequences.

    Returns:
        The fields of the ``Budget`` and the hash of the sequences, as in the file.

    Raises:
        UserError: an example is too long, or there are fewer exposures than update groups.
    """
    examples = read_examples(selection)
    training = Training.model_validate(settings)
    facts = {
        **asdict(budget(examples, training)),
        "sequences_sha256": hash_sequences(build_sequences(examples, training)),
    }
    write_json(output, facts)
    return facts


def read_budget(facts: Mapping[str, Any]) -> Budget:
    """Read the budget from the facts of ``count_budget``."""
    return Budget(**{field.name: facts[field.name] for field in fields(Budget)})


def require_equal_budgets(
    recipe: Recipe, slots: Mapping[str, int], facts: Mapping[Arm, Mapping[str, Any]]
) -> dict[Arm, Budget]:
    """Require that matched arms have equal budgets.

    Args:
        recipe: the recipe.
        slots: n by condition.
        facts: the facts of each arm's budget and selection.

    Returns:
        The first arm's budget of each group of matched arms, by that arm.

    Raises:
        GapftError: matched arms differ in n, N or J.
        UserError: their tokens differ by more than the recipe allows.
    """
    matched = {arm: read_budget(item) for arm, item in facts.items() if item["matched"]}
    groups = group_by_budget(matched, slots, recipe)
    for group in groups:
        require_matched(group)
        require_similar_tokens(group, recipe.budget)
    return {arm: group[arm] for group in groups for arm in [*group][:1]}
