"""Find stored work of the same comparison that a report does not show: seeds and searches."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from gapft_harness.core.json_values import diff_values
from gapft_harness.recipe.recipe import Recipe
from gapft_harness.run_directory import layout
from gapft_harness.run_directory.directory import RunDirectory
from gapft_harness.run_directory.manifest import Manifest
from gapft_harness.run_directory.tables import read_problems
from gapft_harness.stages.generation.chunks import Chunk
from gapft_harness.stages.generation.generation import divide_into_chunks
from gapft_harness.store.explain import describe_key_changes, is_version, list_step_groups
from gapft_harness.store.store import Store, StoreGroup

#: Parts of an adapter's key that a different seed changes.
_SEED_PARTS = ("seed", "sequences", "examples", "arm")


def list_alternatives(run: RunDirectory, shown_recipe: Recipe) -> list[str]:
    """Describe stored seeds and searches of a run's comparison that its report does not show.

    Work that is not in the store beside the run is not described.

    Args:
        run: the run.
        shown_recipe: its recipe, with the conditions and seeds that the report shows.

    Raises:
        UserError: the store has another format.
    """
    store, manifest = Store.for_run(run.path), run.manifest()
    if not store.root.is_dir():
        return []
    return [
        *_describe_seeds(store, run, manifest, shown_recipe),
        *_describe_searches(store, run, manifest),
    ]


def _describe_seeds(
    store: Store, run: RunDirectory, manifest: Manifest, shown_recipe: Recipe
) -> Iterator[str]:
    """Describe conditions with stored adapters of other seeds, trained on the same task."""
    key_by_condition: dict[str, Mapping[str, Any]] = {}
    by_name = {group.name: group for group in list_step_groups(store, "train")}
    for name, facts in manifest["training"].items():
        arm, group = layout.parse_arm(name), by_name.get(str(facts.get("stored")))
        if arm is not None and group is not None and arm.condition in shown_recipe.conditions:
            key_by_condition[arm.condition] = group.made_from
    seeds_by_condition: dict[str, set[int]] = {}
    trained_pairs = {
        (item.condition, item.seed) for item in run.find_trained_arms()
    }  # the report lists these itself
    for group in by_name.values():
        facts, seed = group.read_facts(), group.made_from.get("seed")
        condition = facts.get("condition")
        own_key = key_by_condition.get(str(condition))
        if (
            own_key is None
            or facts.get("task") != run.recipe.data.task
            or seed in shown_recipe.seeds
        ):
            continue
        if (condition, seed) in trained_pairs:
            continue
        differing_parts = [
            key for key, *_ in diff_values(group.made_from, own_key) if not is_version(key)
        ]
        if {*differing_parts} <= {*_SEED_PARTS} and isinstance(seed, int):
            seeds_by_condition.setdefault(str(condition), set()).add(seed)
    if seeds_by_condition:
        descriptions = (
            f"{name} (seeds {', '.join(map(str, sorted(item)))})"
            for name, item in seeds_by_condition.items()
        )
        yield (
            "trained with the same settings and stored, but not in this report: "
            f"{'; '.join(descriptions)}"
        )


def _describe_searches(store: Store, run: RunDirectory, manifest: Manifest) -> Iterator[str]:
    """Describe searches of the same pool with other samples, and other verdicts on them."""
    names = {*manifest.get("stored", {}).get("pool", ())}
    groups = {group.name: group for group in list_step_groups(store, "generate")}
    own_groups = [groups[name] for name in sorted(names) if name in groups]
    samples = next(
        (
            group
            for group in own_groups
            if "streams" in group.made_from and "deployment" not in group.made_from
        ),
        None,
    )
    if samples is None:
        return
    size, k = samples.made_from["chunk"], run.recipe.search.k
    problems = [item for item, _ in read_problems(run.sealed(layout.problems_path("pool")))]
    first = Chunk(divide_into_chunks(problems, size)[0], {}).key
    searches = list[str]()
    for group in groups.values():
        blocks = _find_block_ends(group, first)
        if group.name in names:
            searches += [f"search.k {k} → {end}" for end in sorted(blocks) if end > k]
        elif blocks and group.made_from.get("streams", {}).get("split") == "pool":
            key_changes = [
                item
                for item in diff_values(samples.made_from, group.made_from)
                if not is_version(item[0])
            ]
            searches += [", ".join(describe_key_changes(key_changes))] if key_changes else []
    for group in list_step_groups(store, "judge"):
        if f"judge/{group.key}" in names or f"generate/{group.made_from['responses']}" not in names:
            continue
        own_verifier = next(
            (
                item.made_from["verifier"]
                for item in list_step_groups(store, "judge")
                if item.name in names
                and item.made_from["responses"] == group.made_from["responses"]
            ),
            None,
        )
        if own_verifier is not None:
            key_changes = [
                (f"verifier.{key}", a, b)
                for key, a, b in diff_values(own_verifier, group.made_from["verifier"])
                if not is_version(key)
            ]
            searches += [", ".join(describe_key_changes(key_changes))] if key_changes else []
    if searches:
        yield (
            "other searches of this pool by this model are stored, but not in this report: "
            f"{'; '.join(dict.fromkeys(searches))}"
        )


def _find_block_ends(group: StoreGroup, chunk: str) -> set[int]:
    """Return the ends (exclusive sample numbers) of a group's stored blocks of a chunk."""
    files = group.folder.glob(f"{chunk}.*.jsonl")
    ends = (re.fullmatch(r"\d+-(\d+)", file.name.split(".")[1]) for file in files)
    return {int(end[1]) + 1 for end in ends if end}
