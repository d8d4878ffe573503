"""Find stored work of the same comparison that a report does not show: seeds and searches."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from gapft_harness.core.json_values import changes
from gapft_harness.recipe.recipe import Recipe
from gapft_harness.run_directory import layout
from gapft_harness.run_directory.directory import RunDirectory
from gapft_harness.run_directory.manifest import Manifest
from gapft_harness.run_directory.tables import read_problems
from gapft_harness.stages.generation.chunks import Chunk
from gapft_harness.stages.generation.generation import chunks_of
from gapft_harness.store.explain import describe, is_version, list_groups_of
from gapft_harness.store.store import Group, Store

#: Parts of an adapter's key that a different seed changes.
_OF_SEED = ("seed", "sequences", "examples", "arm")


def list_alternatives(run: RunDirectory, shown: Recipe) -> list[str]:
    """Describe stored seeds and searches of a run's comparison that its report does not show.

    Work that is not in the store beside the run is not described.

    Args:
        run: the run.
        shown: its recipe, with the conditions and seeds that the report shows.

    Raises:
        UserError: the store has another format.
    """
    store, manifest = Store.beside(run.path), run.manifest()
    if not store.root.is_dir():
        return []
    return [*_seeds(store, run, manifest, shown), *_searches(store, run, manifest)]


def _seeds(store: Store, run: RunDirectory, manifest: Manifest, shown: Recipe) -> Iterator[str]:
    """Describe conditions with stored adapters of other seeds, trained on the same task."""
    mine: dict[str, Mapping[str, Any]] = {}
    by_name = {group.name: group for group in list_groups_of(store, "train")}
    for name, facts in manifest["training"].items():
        arm, group = layout.arm_of(name), by_name.get(str(facts.get("stored")))
        if arm is not None and group is not None and arm.condition in shown.conditions:
            mine[arm.condition] = group.made_from
    found: dict[str, set[int]] = {}
    told = {(of.condition, of.seed) for of in run.trained_arms()}  # the report lists these itself
    for group in by_name.values():
        facts, seed = group.facts(), group.made_from.get("seed")
        condition = facts.get("condition")
        own = mine.get(str(condition))
        if own is None or facts.get("task") != run.recipe.data.task or seed in shown.seeds:
            continue
        if (condition, seed) in told:
            continue
        others = [key for key, *_ in changes(group.made_from, own) if not is_version(key)]
        if {*others} <= {*_OF_SEED} and isinstance(seed, int):
            found.setdefault(str(condition), set()).add(seed)
    if found:
        said = (f"{name} (seeds {', '.join(map(str, sorted(of)))})" for name, of in found.items())
        yield (
            f"trained with the same settings and stored, but not in this report: {'; '.join(said)}"
        )


def _searches(store: Store, run: RunDirectory, manifest: Manifest) -> Iterator[str]:
    """Describe searches of the same pool with other samples, and other verdicts on them."""
    names = {*manifest.get("stored", {}).get("pool", ())}
    groups = {group.name: group for group in list_groups_of(store, "generate")}
    own = [groups[name] for name in sorted(names) if name in groups]
    samples = next((group for group in own if "streams" in group.made_from), None)
    if samples is None:
        return
    size, k = samples.made_from["chunk"], run.recipe.search.k
    problems = [of for of, _ in read_problems(run.sealed(layout.problems("pool")))]
    first = Chunk(chunks_of(problems, size)[0], {}).key
    searches = list[str]()
    for group in groups.values():
        blocks = _blocks(group, first)
        if group.name in names:
            searches += [f"search.k {k} → {end}" for end in sorted(blocks) if end > k]
        elif blocks and group.made_from.get("streams", {}).get("split") == "pool":
            differing = [
                of for of in changes(samples.made_from, group.made_from) if not is_version(of[0])
            ]
            searches += [", ".join(describe(differing))] if differing else []
    for group in list_groups_of(store, "judge"):
        if f"judge/{group.key}" in names or f"generate/{group.made_from['responses']}" not in names:
            continue
        mine = next(
            (
                of.made_from["verifier"]
                for of in list_groups_of(store, "judge")
                if of.name in names and of.made_from["responses"] == group.made_from["responses"]
            ),
            None,
        )
        if mine is not None:
            differing = [
                (f"verifier.{key}", a, b)
                for key, a, b in changes(mine, group.made_from["verifier"])
                if not is_version(key)
            ]
            searches += [", ".join(describe(differing))] if differing else []
    if searches:
        yield (
            "other searches of this pool by this model are stored, but not in this report: "
            f"{'; '.join(dict.fromkeys(searches))}"
        )


def _blocks(group: Group, chunk: str) -> set[int]:
    """Return the ends (exclusive sample numbers) of a group's stored blocks of a chunk."""
    files = group.folder.glob(f"{chunk}.*.jsonl")
    ends = (re.fullmatch(r"\d+-(\d+)", file.name.split(".")[1]) for file in files)
    return {int(end[1]) + 1 for end in ends if end}
