"""Arms that train on exactly the same: one is trained, the others take its adapter and answers.

Whether two are the same is told by what is trained on, ``ledger.sequences_hash``, the settings that
it is trained by, and the seed: everything that a trainer as documented draws comes of these. A
replicate (``conditions.NAME.replicate``) is always trained.
"""

from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import zip_longest
from pathlib import Path
from typing import Any

from gapft_harness.core.errors import GapftError
from gapft_harness.core.files import write_json
from gapft_harness.core.records import Arm
from gapft_harness.hooks.manager import Plugins
from gapft_harness.hooks.registered import SamplerTraits, SelectorTraits, TrainerTraits
from gapft_harness.recipe.recipe import Recipe
from gapft_harness.run_directory import layout
from gapft_harness.run_directory.directory import RunDirectory
from gapft_harness.run_directory.manifest import condition_of
from gapft_harness.run_directory.parquet import copy_table, read_facts
from gapft_harness.run_directory.tables import read_examples, read_judged
from gapft_harness.stages.integrity.differences import unequal
from gapft_harness.training.ledger import sequences_hash
from gapft_harness.training.plan import sequences

#: In an adapter's facts and a table of decisions: the name of the arm that it was taken from.
TRAINED_AS = "trained_as"

#: Facts that arms have in common where one took the other's adapter.
_COMMON = (
    "seed", "settings", "sequences_sha256", "plan_sha256", "weights_sha256", "adapter_sha256",
)  # fmt: skip


def shared(
    run: RunDirectory, arms: Sequence[Arm], plugins: Plugins, without: Collection[Arm] = ()
) -> dict[Arm, Arm]:
    """Which arms take the adapter of which, of those that have none yet.

    Args:
        arms: the arms to train, in the recipe's order. Of several that are the same, one that has
            an adapter is trained, or else the first.
        plugins: those that are loaded. Nothing is shared with a trainer that is not as documented
            or a sampler that does not generate: they may go by an arm's name.
        without: arms whose adapters do not count, as if they were not there.

    Returns:
        For each arm that is not to be trained, the arm that is.
    """
    sampler = plugins.get("sampler", run.recipe.model.backend)
    if not sampler.declared(SamplerTraits).generates:
        return {}
    arms = [arm for arm in arms if _by_what_is_trained_on(run, arm, plugins)]
    manifest = run.manifest()
    files, sizes = manifest["files"], manifest["budgets"]
    originals = takers(run, arms)
    there = {
        arm
        for arm in (*arms, *originals.values())
        if (run.path / layout.adapter(arm)).exists() and arm not in without
    }
    many = Counter((arm.seed, sizes[arm.name]["tokens"]) for arm in arms)
    # a copy that was lost is taken of the same arm again: it is sealed
    taken = {
        arm: other
        for arm, other in originals.items()
        if arm not in there
        and (other in there or other in arms)
        and trained_on(run, arm) == trained_on(run, other)
    }
    lost = {arm for arm in arms if arm not in there and layout.adapter(arm) in files}
    first: dict[tuple[int, str], Arm] = {}
    for arm in sorted(arms, key=lambda arm: (arm not in there, arm not in lost)):
        if many[arm.seed, sizes[arm.name]["tokens"]] == 1:
            continue  # of this size there is no other: nothing has to be read
        if arm in taken or (arm in originals and originals[arm] not in there):
            continue  # nobody takes from a copy whose original is lost, or that is lost itself
        other = first.setdefault((arm.seed, trained_on(run, arm)), arm)
        if arm not in there and arm not in lost and other != arm:  # what was trained is so again
            taken[arm] = other
    return taken


def foresee_shared(recipe: Recipe, plugins: Plugins) -> dict[str, str]:
    """Map each condition that will reuse an earlier one's adapters to that condition.

    Known before selection, from the recipe and what selectors declare (``same_as``). Conditions
    whose training sets merely turn out the same share adapters too (``shared``) and are not here.
    Nor is one that a run has trained already by a plugin that is not given now.
    """
    if not plugins.get("sampler", recipe.model.backend).declared(SamplerTraits).generates:
        return {}
    first: dict[str, str] = {}
    found = {}
    for name, condition in recipe.conditions.items():
        training = recipe.training_of(name)
        parts = ("selector", condition.selector), ("trainer", training.trainer)
        if not all(plugins.has(*part) for part in parts):
            continue
        if not plugins.get("trainer", training.trainer).declared(TrainerTraits).as_documented:
            continue
        choice: tuple[str, Mapping[str, Any]] = condition.selector, condition.params
        same_as = plugins.get("selector", condition.selector).declared(SelectorTraits).same_as
        if same_as is not None:
            choice = same_as(condition.params, recipe.k(name)) or choice
        others = recipe.slots(name), recipe.k(name), condition.replicate
        key = json.dumps([*choice, *others, training.model_dump(mode="json")], sort_keys=True)
        if (other := first.setdefault(key, name)) != name:
            found[name] = other
    return found


def _by_what_is_trained_on(run: RunDirectory, arm: Arm, plugins: Plugins) -> bool:
    """Whether an arm's trainer goes by nothing else, such as the arm's name."""
    trainer = plugins.get("trainer", run.recipe.training_of(arm.condition).trainer)
    return trainer.declared(TrainerTraits).as_documented


def sequences_of(run: RunDirectory, arm: Arm) -> str:
    """A hash of the sequences that an arm is trained on, told by its selection."""
    examples = read_examples(run.sealed(layout.selection(arm)))
    return sequences_hash(sequences(examples, run.recipe.training_of(arm.condition)))


def trained_on(run: RunDirectory, arm: Arm) -> str:
    """What an arm's adapter is trained on and by, told by its selection and its condition."""
    settings = run.recipe.training_of(arm.condition).model_dump(mode="json")
    replicate = condition_of(run.manifest(), arm).replicate
    return f"{sequences_of(run, arm)} {replicate} {json.dumps(settings, sort_keys=True)}"


def take_adapter(run: RunDirectory, arm: Arm, other: Arm) -> dict[str, Any]:
    """Copies another arm's sealed adapter; the folder says whose it is, and is whole or absent.

    Returns:
        The facts of its ``training.json``.
    """
    from gapft_harness.training.adapter import model_card, whole_folder

    source = run.sealed(layout.adapter(other))
    facts = _facts(source)
    facts = {**facts, "condition": arm.condition, TRAINED_AS: facts.get(TRAINED_AS, other.name)}
    with whole_folder(run.path / layout.adapter(arm)) as partial:
        shutil.copytree(source, partial, dirs_exist_ok=True)
        (partial / "README.md").write_text(model_card(facts), encoding="utf-8")
        write_json(partial / "training.json", facts)
    return facts


def takers(run: RunDirectory, arms: Iterable[Arm]) -> dict[Arm, Arm]:
    """Of some trained arms those that took an adapter, each with the arm that it is of.

    Raises:
        GapftError: the manifest names no arm there.
    """
    training, found = run.manifest()["training"], {}
    for arm in arms:
        name = training.get(arm.name, {}).get(TRAINED_AS)
        if name is not None:
            other = layout.arm_of(str(name))
            if other is None:
                raise GapftError(f"manifest.json: {arm.name} was trained as {name!r}: no such arm")
            found[arm] = other
    return found


def take_decisions(
    run: RunDirectory, arm: Arm, other: Arm, table: Callable[[Arm], str] = layout.decisions
) -> dict[str, Any]:
    """Copies another arm's sealed answers, which are its own adapter's as well.

    Returns:
        The facts of the table, as ``sealing.write_responses`` gives them.
    """
    source, path = run.sealed(table(other)), run.path / table(arm)
    if not path.exists():
        facts = read_facts(source)
        if facts.get("adapter"):
            facts["adapter"] = {**facts["adapter"], "arm": arm.name}
        copy_table(source, path, {**facts, TRAINED_AS: other.name})
    return read_facts(path)


def check_taken(
    run: RunDirectory,
    arm: Arm,
    other: Arm,
    files: Iterable[str],
    audits: Iterable[str] = ("",),
) -> Iterator[str]:
    """For ``gapft verify``: an adapter that was taken is the other's, and so are its answers.

    Args:
        audits: the names of the further audits, and an empty one for the run's own.
    """
    where = f"{layout.adapter(arm)}/training.json"
    if other == arm or layout.adapter(other) not in files:
        yield f"{where}: was taken from {other.name}, of which no adapter is sealed"
        return
    facts, original = (_facts(run.path / layout.adapter(of)) for of in (arm, other))
    numbers = [condition_of(run.manifest(), of).replicate for of in (arm, other)]
    if numbers[0] != numbers[1]:
        yield (
            f"{where}: was taken from {other.name}, but {arm.name} is replicate {numbers[0]} of a "
            f"training of which {other.name} is replicate {numbers[1]}, so it must be trained"
        )
    if TRAINED_AS in original:
        yield f"{where}: was taken from {other.name}, which was itself taken from another"
    right = {key: original.get(key) for key in _COMMON}
    yield from unequal(where, facts, right, f"{other.name}, from which it was taken, has")
    for audit in audits:
        mine, theirs = (layout.decisions_on(of, audit) for of in (arm, other))
        if mine not in files:
            continue
        if theirs not in files:
            yield f"{mine}: is of an adapter taken from {other.name}, and {theirs} is not sealed"
            continue
        # asked of the table, too: a table that does not say so is no other's
        said = {TRAINED_AS: other.name}
        yield from unequal(mine, read_facts(run.path / mine), said, "the adapter's says")
        pairs = zip_longest(read_judged(run.path / mine), read_judged(run.path / theirs))
        if any(one != another for one, another in pairs):
            yield f"{mine}: was taken from {theirs}, and says something else"


def _facts(folder: Path) -> dict[str, Any]:
    facts: dict[str, Any] = json.loads((folder / "training.json").read_text("utf-8"))
    return facts


def stale(run: RunDirectory, arms: Iterable[Arm], plugins: Plugins) -> dict[Arm, str]:
    """Unsealed adapters that were trained otherwise than they would be now, or are copies.

    Args:
        plugins: those that are loaded. Of what a trainer that is not as documented wrote, what it
            says of its training is compared, and no more.

    Returns:
        By arm, in words, what is wrong with its adapter. One that is not whole is not among them:
        ``adapter_facts`` tells of it.
    """
    manifest, found = run.manifest(), {}
    for arm in arms:
        settings = run.recipe.training_of(arm.condition)
        where = layout.adapter(arm)
        facts = None if where in manifest["files"] else _facts_if_read(run.path / where)
        if facts is None:
            continue
        if TRAINED_AS in facts:
            found[arm] = f"{where}: is a copy of {facts[TRAINED_AS]}'s"
            continue
        right = {
            "seed": arm.seed,
            "sequences_sha256": sequences_of(run, arm),
            "settings": settings.model_dump(mode="json"),
        }
        if (base := manifest["source"].get("weights_sha256")) is not None:
            right["base_sha256"] = base
        trainer = plugins.get("trainer", settings.trainer)
        if not trainer.declared(TrainerTraits).as_documented:
            right = {key: value for key, value in right.items() if key in facts}
        says = "the selection and the recipe give"
        if wrong := next(iter(unequal(f"{where}/training.json", facts, right, says)), None):
            found[arm] = wrong
    return found


def remove(run: RunDirectory, stale_arms: Mapping[Arm, str], say: Callable[[str], None]) -> None:
    """Takes away adapters that ``stale`` found, and says of each why; the run's lock is held."""
    for arm, why in stale_arms.items():
        run.unseal([layout.adapter(arm)])
        say(f"{why}; an earlier command left it unsealed, so it was removed and is made anew")


def _facts_if_read(folder: Path) -> dict[str, Any] | None:
    """What an adapter says of itself, if that can be read."""
    try:
        facts = json.loads((folder / "training.json").read_text("utf-8"))
    except (OSError, ValueError):
        return None
    return facts if isinstance(facts, dict) else None
