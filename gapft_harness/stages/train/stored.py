"""Adapters in the store: their key is computed from all inputs, and each is trained once.

Arms with the same key share an adapter, in one run or in several. A trainer that is not
``as_documented`` may depend on an arm's name, so its keys contain the name.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from gapft_harness.core.errors import GapftError
from gapft_harness.core.files import format_json, sha256, sha256_cached, write_json
from gapft_harness.core.identities import content_hash
from gapft_harness.core.numerics import describe_environment
from gapft_harness.core.records import Arm, Example
from gapft_harness.hooks.manager import Plugins
from gapft_harness.hooks.protocols import SearchedPool, TaskVerifier
from gapft_harness.hooks.registration import SamplerTraits, SelectorTraits, TrainerTraits
from gapft_harness.recipe.recipe import (
    Recipe,
    build_sampler_settings,
    resolve_model_args,
    select_fixed_args,
)
from gapft_harness.run_directory import layout
from gapft_harness.run_directory.directory import RunDirectory
from gapft_harness.run_directory.manifest import Manifest, find_condition
from gapft_harness.run_directory.tables import read_examples
from gapft_harness.stages.generation.made_from import (
    describe_accelerators,
    describe_argument,
    describe_libraries,
    describe_model,
)
from gapft_harness.store.digests import Digests
from gapft_harness.store.store import INDEX, Store, StoreGroup, damaged_file_error, read_json
from gapft_harness.training.ledger import hash_sequences
from gapft_harness.training.plan import build_sequences

#: In an adapter's facts: its group in the store, ``train/KEY``.
STORED: Final = "stored"

#: In the manifest's facts of an adapter: the arm of this run whose adapter it reuses.
TRAINED_AS: Final = "trained_as"

#: Keys of an adapter's facts that are only in the manifest, not in its folder.
MANIFEST_ONLY_KEYS: Final = ("seconds", TRAINED_AS, "reused")

#: In an adapter's folder: the content that its key was computed from.
MADE_FROM: Final = "made_from.json"

#: The step's name in the store, and its version, which increases when adapters change meaning.
_STEP, VERSION = "train", 1

#: Libraries whose minor versions may change the result of training.
_LIBRARIES = (
    "torch", "transformers", "tokenizers", "peft", "accelerate", "liger-kernel", "trl",
)  # fmt: skip

#: Files of at least this many bytes are hard-linked to and from the store, if possible.
_LINK_MIN_BYTES = 1 << 16


def compute_groups(
    run: RunDirectory,
    arms: Iterable[Arm],
    plugins: Plugins,
    read_pool: Callable[[], SearchedPool],
) -> dict[Arm, StoreGroup]:
    """Compute the store's groups for the adapters of some arms, stored or not.

    Args:
        run: the run; its selections are sealed.
        arms: arms of its recipe.
        plugins: the loaded plugins.
        read_pool: returns the searched pool; called for trainers that need problems.
    """
    recipe, store = run.recipe, Store.for_run(run.path)
    digests, arguments = Digests(), resolve_model_args(recipe)
    base, is_known = describe_model(arguments, digests)
    if not is_known:
        base["weights_sha256"] = run.manifest()["source"].get("weights_sha256")
    fixed_arguments = select_fixed_args(recipe.model.backend, arguments, plugins)
    groups: dict[Arm, StoreGroup] = {}
    pool: str | None = None
    for arm in arms:
        trainer = plugins.get("trainer", recipe.resolve_training(arm.condition).trainer)
        traits = trainer.require_traits(TrainerTraits)
        examples = read_examples(run.sealed(layout.selection_path(arm)))
        replicate = find_condition(run.manifest(), arm).replicate
        made_from: dict[str, Any] = {
            "trainer": {"name": trainer.name, "code": trainer.code_hash},
            **describe_training(recipe, arm, examples, replicate, traits.as_documented),
            "base": base,
            "libraries": describe_libraries(_LIBRARIES),
            "accelerators": describe_accelerators(),
            "environment": describe_environment(),
        }
        if not traits.as_documented:
            made_from["arguments"] = {
                key: describe_argument(value, digests)
                for key, value in fixed_arguments.items()
                if key != "pretrained"
            }
        if traits.needs_problems:
            pool = pool or _hash_pool(read_pool(), plugins, digests)
            made_from["searched"] = pool
        groups[arm] = store.find_group(_STEP, VERSION, made_from)
    return groups


def describe_training(
    recipe: Recipe, arm: Arm, examples: Sequence[Example], replicate: int, as_documented: bool
) -> dict[str, Any]:
    """Describe the recipe's and the training set's part of an adapter's key.

    Args:
        recipe: the run's recipe.
        arm: the arm.
        examples: its training set.
        replicate: the number of its condition among those that repeat one training.
        as_documented: whether its trainer declares this; another one may depend on the arm's name.
    """
    settings = recipe.resolve_training(arm.condition)
    parts: dict[str, Any] = {
        "settings": settings.model_dump(mode="json"),
        "sequences": hash_sequences(build_sequences(examples, settings)),
        "seed": arm.seed,
        "replicate": replicate,
        "device": str(resolve_model_args(recipe).get("device", "")).partition(":")[0],
        "chat_template": build_sampler_settings(recipe).chat_template,
    }
    if not as_documented:
        parts["arm"] = arm.name
        parts["examples"] = content_hash([asdict(example) for example in examples])
    return parts


def _hash_pool(searched: SearchedPool, plugins: Plugins, digests: Digests) -> str:
    """Hash the searched pool as a trainer receives it."""
    verifiers: list[Any] = []
    rule: TaskVerifier | None = searched.verifier
    while rule is not None:
        code = plugins.get("verifier", rule.name).code_hash
        verifiers.append([rule.name, describe_argument(dict(rule.params), digests), code])
        rule = rule.permissive
    problems = [
        [
            problem.id,
            problem.prompt,
            problem.gold,
            list(map(dict, problem.turns)),
            list(searched.prompt_ids[problem.id]),
        ]
        for problem in searched.problems
    ]
    return content_hash([problems, asdict(searched.decoding), verifiers, dict(searched.states)])


def record_made_from(folder: Path, group: StoreGroup) -> None:
    """Write the content of an adapter's key into its folder, unless the file exists."""
    if not (folder / MADE_FROM).exists():
        write_json(folder / MADE_FROM, group.made_from)


def is_stored(group: StoreGroup) -> bool:
    """Return whether the store has the complete adapter."""
    return group.store.has_group(group.name)


def has_copies(group: StoreGroup) -> bool:
    """Return whether the store has copies of large files, since hard links were not possible."""
    files = (file.stat() for file in group.folder.iterdir() if file.is_file())
    return any(file.st_size >= _LINK_MIN_BYTES and file.st_nlink == 1 for file in files)


def claim_adapter(group: StoreGroup, *, wait: bool) -> contextlib.AbstractContextManager[bool]:
    """Hold the claim to train an adapter; see ``StoreGroup.claim_file``."""
    return group.claim_file(INDEX, wait=wait)


def store_adapter(group: StoreGroup, folder: Path, run: RunDirectory) -> None:
    """Store an adapter's folder, unless the store has it.

    Args:
        group: the adapter's group, from ``compute_groups``.
        folder: the complete folder.
        run: the run that it was trained for.

    Raises:
        UserError: the store cannot be written.
        GapftError: the disk is full.
    """
    if is_stored(group):
        return
    files = sorted(path for path in folder.rglob("*") if path.is_file() and path.name != MADE_FROM)
    group.create({"run": str(run.path.resolve())})
    index = {}
    for file in files:
        name = str(file.relative_to(folder))
        index[name] = sha256(file)
        stored = group.folder / index[name]
        if file.stat().st_size < _LINK_MIN_BYTES or not group.link_file(index[name], file):
            group.store_file(stored.name, file.read_bytes())
    group.store_file(INDEX, format_json({"files": index, "sha256": content_hash(index)}).encode())


def copy_from_store(run: RunDirectory, arm: Arm, group: StoreGroup) -> dict[str, Any]:
    """Copy a stored adapter into a run, atomically.

    Args:
        run: the run.
        arm: the arm.
        group: the adapter's group. Unless its key contains an arm's name, the facts are changed to
            name this arm.

    Returns:
        The facts of its ``training.json``, with the run directory that it was trained for under
        ``reused``, if that is another run.

    Raises:
        UserError: a stored file was changed.
    """
    from gapft_harness.training.adapter import write_folder

    base, trained_for = (
        str(resolve_model_args(run.recipe)["pretrained"]),
        group.read_facts().get("run"),
    )
    index = read_json(group.folder / INDEX)
    if content_hash(index.get("files")) != index.get("sha256"):
        raise damaged_file_error(group.folder / INDEX, "its hash is different")
    with write_folder(run.path / layout.adapter_path(arm)) as partial:
        for name, recorded in index["files"].items():
            stored, file = group.folder / str(recorded), partial / name
            if sha256_cached(stored) != recorded:
                raise damaged_file_error(stored, "its hash is different")
            file.parent.mkdir(parents=True, exist_ok=True)
            if stored.stat().st_size >= _LINK_MIN_BYTES:
                with contextlib.suppress(OSError):  # another file system: copy instead
                    os.link(stored, file)
            if not file.exists():
                shutil.copyfile(stored, file)
        facts = read_json(partial / "training.json")
        if facts.get(STORED) != group.name:
            raise damaged_file_error(group.folder / INDEX, f"copied from {facts.get(STORED)}")
        if "arm" not in group.made_from:
            card = partial / "README.md"
            if card.is_file():  # PEFT's names the base
                text = card.read_text("utf-8").replace(str(facts["base_model"]), base)
                _replace_text(card, text)
            facts |= {"condition": arm.condition, "base_model": base}
            config = read_json(partial / "adapter_config.json")
            config["base_model_name_or_path"] = base
            text = json.dumps(config, indent=2, sort_keys=True) + "\n"
            _replace_text(partial / "adapter_config.json", text)
        (partial / "training.json").unlink()
        write_json(partial / "training.json", facts)
    reused = {} if trained_for == str(run.path.resolve()) else {"reused": trained_for}
    return {**facts, **reused}


def _replace_text(path: Path, text: str) -> None:
    """Replace a file that may be hard-linked with another."""
    path.unlink(missing_ok=True)
    path.write_text(text, encoding="utf-8")


def find_stale(run: RunDirectory, groups: Mapping[Arm, StoreGroup]) -> dict[Arm, str]:
    """List unsealed adapters whose inputs differ from those of a training now.

    Returns:
        A description of the difference by arm. Incomplete adapters are not listed:
        ``adapter_facts`` reports them.
    """
    files, reasons = run.manifest()["files"], {}
    for arm, group in groups.items():
        relative = layout.adapter_path(arm)
        if relative in files:
            continue
        try:
            facts = json.loads((run.path / relative / "training.json").read_text("utf-8"))
        except (OSError, ValueError):
            continue
        key = facts.get(STORED) if isinstance(facts, dict) else None
        if not isinstance(facts, dict) or key != group.name:
            difference = _list_differing_parts(run, key, group)
            reasons[arm] = f"{relative}: was trained from different inputs{difference}"
    return reasons


def _list_differing_parts(run: RunDirectory, key: str | None, group: StoreGroup) -> str:
    """List the parts of a key that differ, if the store has the content of the other key."""
    path = Store.for_run(run.path).root / str(key) / "made_from.json"
    if not path.is_file():
        return ""
    other_key, own_key = read_json(path).get("key", {}), group.made_from
    keys = [name for name in own_key if other_key.get(name) != own_key[name]]
    return f" ({', '.join(keys)})" if keys else ""


def remove_stale(run: RunDirectory, stale: Mapping[Arm, str], say: Callable[[str], None]) -> None:
    """Remove the adapters of ``find_stale`` and report the reasons; the run's lock must be held."""
    for arm, reason in stale.items():
        run.unseal([layout.adapter_path(arm)])
        say(f"{reason}; an earlier command left it unsealed, so it is removed and trained again")


def map_originals(manifest: Manifest) -> dict[Arm, Arm]:
    """Map each arm that reuses an adapter to the arm that was trained.

    Raises:
        GapftError: the manifest does not name an arm there.
    """
    original_by_arm = {}
    for name, facts in manifest["training"].items():
        if (original_name := facts.get(TRAINED_AS)) is None:
            continue
        arm, original = layout.parse_arm(name), layout.parse_arm(str(original_name))
        if arm is None or original is None:
            raise GapftError(
                f"manifest.json: {name} was trained as {original_name!r}, which is not an arm"
            )
        original_by_arm[arm] = original
    return original_by_arm


def find_original(manifest: Manifest, arm: Arm, stored: str | None, plugins: Plugins) -> str | None:
    """Find the arm of a run whose adapter has the same key, and therefore the same answers.

    Returns:
        Its name; None if there is none, or if the run's responses may depend on an arm's name.
    """
    sampler = plugins.get("sampler", manifest["recipe"]["model"]["backend"])
    if not sampler.require_traits(SamplerTraits).generates:
        return None
    for name, facts in manifest["training"].items():
        if name != arm.name and stored and facts.get(STORED) == stored:
            return str(facts.get(TRAINED_AS, name))
    return None


def predict_shared(recipe: Recipe, plugins: Plugins) -> dict[str, str]:
    """Map each condition that will share an earlier condition's adapters to that condition.

    This is known before selection from the recipe and the selectors' ``same_as``. Conditions whose
    training sets turn out the same share adapters too, but are not listed.
    """
    if not plugins.get("sampler", recipe.model.backend).require_traits(SamplerTraits).generates:
        return {}
    first_by_key: dict[str, str] = {}
    shared = {}
    for name, condition in recipe.conditions.items():
        training = recipe.resolve_training(name)
        parts = ("selector", condition.selector), ("trainer", training.trainer)
        if not all(plugins.has(*part) for part in parts):
            continue
        if not plugins.get("trainer", training.trainer).require_traits(TrainerTraits).as_documented:
            continue
        choice: tuple[str, Mapping[str, Any]] = condition.selector, condition.params
        same_as = plugins.get("selector", condition.selector).require_traits(SelectorTraits).same_as
        if same_as is not None:
            choice = same_as(condition.params, recipe.find_k(name)) or choice
        settings = recipe.find_slots(name), recipe.find_k(name), condition.replicate
        key = json.dumps([*choice, *settings, training.model_dump(mode="json")], sort_keys=True)
        if (first_name := first_by_key.setdefault(key, name)) != name:
            shared[name] = first_name
    return shared
