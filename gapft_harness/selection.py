"""Selection: each condition's selector fills the matched budget (Section 3.3, Equation 7).

Reads the pool's states; writes ``selections/CONDITION-seedS.parquet`` for every arm. Budgets are
computed and enforced here, before anything is trained.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from gapft_harness.budgets import enforce_matched, enforce_tokens, set_replay_aside
from gapft_harness.errors import GapftError, PluginError, PoolTooSmallError, UserError
from gapft_harness.files import replace_file
from gapft_harness.generation import decoding_from
from gapft_harness.plugin_manager import Registered, load_plugins
from gapft_harness.protocols import Selector
from gapft_harness.recipe import Recipe
from gapft_harness.records import Arm, Budget, Evidence, Example, Pool
from gapft_harness.run_directory import RunDirectory
from gapft_harness.streams import Stream
from gapft_harness.tables import read_evidence, read_examples
from gapft_harness.training.plan import budget


def arms(recipe: Recipe) -> list[Arm]:
    """Every (condition, seed) of a recipe, in the recipe's order."""
    return [Arm(condition, seed) for condition in recipe.conditions for seed in recipe.seeds]


def select(run: RunDirectory, plugin_files: Sequence[str] = ()) -> dict[str, Any]:
    """Selects every arm's training set under the matched budget.

    Args:
        run: the run, with the recipe whose conditions, seeds and budget are wanted.
        plugin_files: files given by ``--plugin``.

    Returns:
        Facts for the manifest: ``budgets`` by arm, with the number of examples whose generator did
        not say how they ended (``ends_unknown``), and ``n``; both empty or 0 if search
        recovered nothing and the budget is ``recovered``: there is nothing to train on.

    Raises:
        UserError: a pool too small for the budget (the message says by how many), or supervised
            tokens that differ by more than the recipe allows.
        PluginError: a selector that broke its contract, or that now chooses other examples than
            those that are sealed.
    """
    for file in ("problems", "responses", "states"):
        run.sealed(f"pool/{file}.parquet")
    limit = decoding_from(run.manifest()["task"]).max_gen_toks
    pool = make_pool(read_evidence(run.path / "pool", run.recipe.evidence.context, limit))
    n = slots_of(run.recipe, pool)
    if n == 0:
        return {"budgets": {}, "n": 0}
    plugins = load_plugins(plugin_files)
    replay = run.recipe.budget.replay
    chosen = {
        arm: fill(*plugins.selector(arm.condition), pool, n, replay, arm)
        for arm in arms(run.recipe)
    }
    budgets = {
        arm: budget([to_example(e) for e in examples], run.recipe.training)
        for arm, examples in chosen.items()
    }
    matched = {
        arm: b
        for arm, b in budgets.items()
        if not has_own_budget(plugins.get("selector", arm.condition))
    }
    enforce_matched(matched)
    enforce_tokens(matched, run.recipe.budget.token_tolerance)
    paths = {arm: run.path / "selections" / f"{arm.name}.parquet" for arm in chosen}
    for arm, examples in chosen.items():
        if paths[arm].exists() and read_examples(paths[arm]) != [to_example(e) for e in examples]:
            raise PluginError(
                f"{paths[arm]}: is sealed, and condition {arm.condition!r} now chooses other "
                "examples: its selector, the budget or the version of this package was changed. "
                "Start a new run directory, or register the changed selector under a new name"
            )
    for arm, examples in chosen.items():
        if not paths[arm].exists():
            _write(paths[arm], examples, budgets[arm])
    return {
        "n": n,
        "budgets": {
            arm.name: {
                **asdict(b),
                "matched": arm in matched,
                "ends_unknown": sum(map(_ends_unknown, chosen[arm])),
            }
            for arm, b in budgets.items()
        },
    }


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
    who = f"selector {entry.name!r} (plugin {entry.plugin}, hook register_selectors)"
    own = has_own_budget(entry)
    slots = len(pool.verified) if own else n
    rng = Stream(arm.seed, f"select/{entry.name}")
    try:
        returned = list(selector(pool, slots, rng))
    except PoolTooSmallError as error:
        raise UserError(
            f"condition {entry.name!r} cannot fill the budget of {slots} examples: {error} "
            f"(to choose from: {_sizes(pool)}). Enlarge the pool or set budget.n"
        ) from error
    except GapftError:
        raise
    except Exception as error:
        raise PluginError(f"{who} failed: {type(error).__name__}: {error}") from error
    known = {e.problem_id: e for e in (*pool.solved, *pool.recovered, *pool.missed)}
    for example in returned:
        if not isinstance(example, Evidence) or example.problem_id not in known:
            raise PluginError(f"{who} returned something that is not of this pool: {example!r}")
        if example.response is None or not example.response.token_ids:
            raise PluginError(
                f"{who} returned problem {example.problem_id} without a response to train on "
                f"(state {known[example.problem_id].state})"
            )
        if not entry.options.get("gold", False) and example != known[example.problem_id]:
            raise PluginError(
                f"{who} returned a response to problem {example.problem_id} that is not its "
                "verified evidence; register it with gold=True if that is intended"
            )
    if (own and not returned) or (not own and len(returned) != slots):
        raise PluginError(f"{who} returned {len(returned)} examples, expected {slots}")
    if not entry.options.get("repeats", False):
        counts = Counter(e.problem_id for e in returned)
        if repeated := sorted(i for i, count in counts.items() if count > 1):
            raise PluginError(
                f"{who} returned {len(repeated)} problems more than once (first: {repeated[0]}); "
                "register it with repeats=True if that is intended"
            )
    return returned


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


def _write(path: Path, chosen: Sequence[Evidence], found: Budget) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    from gapft_harness.schemas import SELECTION

    table = pa.Table.from_pylist([asdict(to_example(e)) for e in chosen], schema=SELECTION)
    table = table.replace_schema_metadata({"gapft": json.dumps(asdict(found))})
    replace_file(path, lambda beside: pq.write_table(table, beside, compression="zstd"))
