"""Selection: each condition's selector fills the matched budget (Section 3.3, Equation 7).

Reads the pool's states; writes ``selections/CONDITION-seedS.parquet`` for every arm. Budgets are
computed and enforced here, before anything is trained.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from reprlib import repr as short
from typing import Any

from gapft_harness.core.errors import PluginError, PoolTooSmallError, UserError
from gapft_harness.core.records import Arm, Evidence, Example, Pool, Response
from gapft_harness.core.streams import Stream
from gapft_harness.hooks.checked import ids_fault
from gapft_harness.hooks.manager import Plugins, Registered, load_plugins
from gapft_harness.hooks.protocols import Selector
from gapft_harness.recipe.recipe import Recipe
from gapft_harness.run_directory import layout
from gapft_harness.run_directory.binding import differences
from gapft_harness.run_directory.directory import RunDirectory
from gapft_harness.run_directory.tables import read_evidence, read_examples, read_facts
from gapft_harness.run_directory.tables.selections import write_examples
from gapft_harness.stages.generation.generation import decoding_from
from gapft_harness.stages.selection.budgets import enforce_matched, enforce_tokens, set_replay_aside
from gapft_harness.training.plan import budget


def arms(recipe: Recipe) -> list[Arm]:
    """Every (condition, seed) of a recipe, in the recipe's order."""
    return [Arm(condition, seed) for condition in recipe.conditions for seed in recipe.seeds]


@dataclass(frozen=True, slots=True)
class Selected:
    """One arm's training set.

    Attributes:
        examples: in order.
        matched: whether its budget is the comparison's matched one.
        ends_unknown: examples whose generator did not say how they ended.
    """

    examples: list[Example]
    matched: bool
    ends_unknown: int


def trained_conditions(run: RunDirectory) -> set[str]:
    """The recipe's conditions that are trained under all its seeds: nothing chooses for them."""
    trained = run.trained_arms()
    return {arm.condition for arm in trained} - {
        arm.condition for arm in arms(run.recipe) if arm not in trained
    }


def select(run: RunDirectory, plugin_files: Sequence[str] = ()) -> dict[str, Any]:
    """Selects every arm's training set under the matched budget.

    What is sealed and trained on must be chosen again; without its selector at hand it is taken as
    it is. What nothing was trained on is made anew if it would be chosen otherwise now.

    Args:
        run: the run, with the recipe whose conditions, seeds and budget are wanted.
        plugin_files: files given by ``--plugin``.

    Returns:
        Facts for the manifest: ``budgets`` by arm, with the number of examples whose generator did
        not say how they ended (``ends_unknown``), and ``n``; both empty or 0 if search
        recovered nothing and the budget is ``recovered``: there is nothing to train on.

    Raises:
        UserError: a pool too small for the budget (the message says by how many), supervised
            tokens that differ by more than the recipe allows, or a budget by which other examples
            would be chosen than those that are trained on.
        PluginError: a selector that broke its contract, or that now chooses other examples than
            those that are trained on.
    """
    for table in (layout.problems, layout.responses, layout.states):
        run.sealed(table("pool"))
    limit = decoding_from(run.manifest()["task"]).max_gen_toks
    pool = make_pool(read_evidence(run.path, "pool", run.recipe.evidence.context, limit))
    n = slots_of(run.recipe, pool)
    if n == 0:
        return {"budgets": {}, "n": 0}
    plugins = load_plugins(plugin_files)
    trained, said = run.trained_arms(), run.manifest()["budgets"]
    chosen = {
        arm: _sealed(run, arm, said[arm.name])
        if arm in trained and arm.name in said and not plugins.has("selector", arm.condition)
        else _select(plugins, run.recipe, pool, n, arm)
        for arm in arms(run.recipe)
    }
    budgets = {arm: budget(found.examples, run.recipe.training) for arm, found in chosen.items()}
    matched = {arm: b for arm, b in budgets.items() if chosen[arm].matched}
    enforce_matched(matched)
    enforce_tokens(matched, run.recipe.budget.token_tolerance)
    paths = {arm: run.path / layout.selection(arm) for arm in chosen}
    there = {arm for arm, path in paths.items() if path.exists()}
    for arm in there.intersection(trained):
        if read_examples(paths[arm]) != chosen[arm].examples:
            raise _other_examples(run, arm, paths[arm])
    stale = [
        arm
        for arm in paths
        if arm in there
        and arm not in trained
        and _content(paths[arm]) != (chosen[arm].examples, asdict(budgets[arm]))
    ]
    run.unseal(layout.selection(arm) for arm in stale)
    for arm, found in chosen.items():
        if not paths[arm].exists():
            write_examples(paths[arm], found.examples, budgets[arm])
    return {
        "n": n,
        "budgets": {
            arm.name: {
                **asdict(b),
                "matched": chosen[arm].matched,
                "ends_unknown": chosen[arm].ends_unknown,
            }
            for arm, b in budgets.items()
        },
    }


def _select(plugins: Plugins, recipe: Recipe, pool: Pool, n: int, arm: Arm) -> Selected:
    selector, entry = plugins.selector(arm.condition)
    evidence = fill(selector, entry, pool, n, recipe.budget.replay, arm)
    return Selected(
        [to_example(e) for e in evidence],
        not has_own_budget(entry),
        sum(map(_ends_unknown, evidence)),
    )


def _sealed(run: RunDirectory, arm: Arm, said: Mapping[str, Any]) -> Selected:
    examples = read_examples(run.sealed(layout.selection(arm)))
    return Selected(examples, said.get("matched", True), said.get("ends_unknown", 0))


def _other_examples(run: RunDirectory, arm: Arm, path: Path) -> UserError:
    earlier = RunDirectory.open(run.path).recipe
    before, now = (of.budget.model_dump(mode="json") for of in (earlier, run.recipe))
    if differing := differences(before, now, "budget"):
        return UserError(
            f"{path}: is trained on, and by another budget other examples would be chosen; "
            f"differing: {'; '.join(differing)}. Give the budget that was trained by, or another "
            "--run-dir"
        )
    return PluginError(
        f"{path}: is sealed, and condition {arm.condition!r} now chooses other "
        "examples: its selector or the version of this package was changed. "
        "Start a new run directory, or register the changed selector under a new name"
    )


def make_pool(evidence: Sequence[Evidence]) -> Pool:
    """Groups evidence by state."""
    by_state = {state: tuple(e for e in evidence if e.state == state) for state in ("G", "S", "U")}
    return Pool(solved=by_state["G"], recovered=by_state["S"], missed=by_state["U"])


def slots_of(recipe: Recipe, pool: Pool) -> int:
    """n, the slots of a matched selector; 0 if it is what search recovered, and that is nothing."""
    wanted = recipe.budget.n
    return len(pool.recovered) if wanted == "recovered" else wanted


def fill(
    selector: Selector, entry: Registered, pool: Pool, n: int, replay: int, arm: Arm
) -> list[Evidence]:
    """All of one arm's slots: its selector's choice, then the replay that its seed's arms share.

    A matched selector chooses from a pool that the replay was taken out of. A reference with its
    own budget sees the whole pool and gets none.

    Raises:
        UserError: the pool is too small for n or for the replay.
        PluginError: see ``choose``.
    """
    if has_own_budget(entry):
        return choose(selector, entry, pool, n, arm)
    shared, rest = set_replay_aside(pool, replay, arm.seed)
    return [*choose(selector, entry, rest, n, arm), *shared]


def choose(selector: Selector, entry: Registered, pool: Pool, n: int, arm: Arm) -> list[Evidence]:
    """Runs one selector and holds it to its contract.

    Raises:
        UserError: the pool is too small.
        PluginError: the selector failed, or returned the wrong number, something that is no
            evidence of this pool, or undeclared repeats or unverified responses.
    """
    own = has_own_budget(entry)
    slots = len(pool.verified) if own else n
    rng = Stream(arm.seed, f"select/{entry.name}")
    try:
        with entry.blamed():
            returned = list(selector(pool, slots, rng))
    except PoolTooSmallError as error:
        raise UserError(
            f"condition {entry.name!r} cannot fill the budget of {slots} examples: {error} "
            f"(to choose from: {_sizes(pool)}). Enlarge the pool or set budget.n"
        ) from error
    known = {e.problem_id: e for e in (*pool.solved, *pool.recovered, *pool.missed)}
    for example in returned:
        if fault := _evidence_fault(example, known, bool(entry.options.get("gold", False))):
            raise entry.broke(f"returned {fault}")
    if (own and not returned) or (not own and len(returned) != slots):
        raise entry.broke(f"returned {len(returned)} examples, expected {slots}")
    if not entry.options.get("repeats", False):
        counts = Counter(e.problem_id for e in returned)
        if repeated := sorted(i for i, count in counts.items() if count > 1):
            raise entry.broke(
                f"returned {len(repeated)} problems more than once (first: {repeated[0]}); "
                "register it with repeats=True if that is intended"
            )
    return returned


def _evidence_fault(example: Any, known: Mapping[str, Evidence], gold: bool) -> str:
    """What keeps something that a selector returned from being an example, or ``""``."""
    ours = isinstance(example, Evidence) and isinstance(example.problem_id, str)
    if not ours or example.problem_id not in known:
        return f"something that is not of this pool: {short(example)}"
    evidence, response = known[example.problem_id], example.response
    if not isinstance(response, Response) or not response.token_ids:
        return (
            f"problem {evidence.problem_id} without a response to train on (state {evidence.state})"
        )
    if gold:
        # What it made itself is sealed as it is.
        fault = ids_fault(example.prompt_ids) or ids_fault(response.token_ids)
        return fault and f"problem {evidence.problem_id} with {fault}"
    if example != evidence:
        return (
            f"a response to problem {evidence.problem_id} that is not its verified evidence; "
            "register it with gold=True if that is intended"
        )
    return ""


def to_example(evidence: Evidence) -> Example:
    """The exact ids to train on."""
    response = evidence.response
    assert response is not None
    return Example(
        evidence.problem_id,
        evidence.state,
        evidence.prompt_ids,
        response.token_ids,
        response.index,
        evidence.first_success,
        evidence.ended,
    )


def has_own_budget(entry: Registered) -> bool:
    """Whether a condition is a reference with a budget of its own, not a matched one."""
    return bool(entry.options.get("budget", "matched") == "own")


def _ends_unknown(evidence: Evidence) -> bool:
    return evidence.response is not None and evidence.response.finish_reason == "unknown"


def _sizes(pool: Pool) -> str:
    return f"{len(pool.solved)} G, {len(pool.recovered)} S, {len(pool.missed)} U"


def _content(path: Path) -> tuple[list[Example], dict[str, Any]]:
    """A training set and its budget, as they were written."""
    return read_examples(path), read_facts(path)
