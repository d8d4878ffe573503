"""A source that is a base plus an adapter, merged once, in the store, into a model folder.

The run then names this folder as ``pretrained``, so that search, training, audit and verification
need nothing else.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gapft_harness.core.errors import UserError
from gapft_harness.core.files import format_json, write_json
from gapft_harness.core.weights import (
    MERGED,
    find_hub_commit,
    find_model_files,
    find_weights_folder,
    weights_hash,
)
from gapft_harness.lm_eval_bridge.samplers.adapter_fit import (
    NamedAdapter,
    check_adapter,
    read_training_facts,
    require_peft_folder,
    require_trained_base,
)
from gapft_harness.recipe.recipe import Recipe, resolve_model_args
from gapft_harness.run_directory import layout
from gapft_harness.run_directory.manifest import MergedSource, read_manifest
from gapft_harness.stages.generation.made_from import (
    describe_adapter,
    describe_libraries,
    describe_model,
)
from gapft_harness.store.digests import Digests
from gapft_harness.store.store import INDEX, Store, StoreGroup, damaged_file_error, read_json

#: The step's name in the store, and its version, which increases when merged models change meaning.
_STEP, _VERSION = "merge", 1

#: Libraries whose minor versions may change merged weights.
_LIBRARIES = ("torch", "transformers", "peft")

#: Model arguments that locate the base; those after the first do not apply to the merged folder.
_LOCATION = ("pretrained", "revision", "subfolder")

#: Files that transformers writes with the merged weights, so they are not copied from the base.
_WRITTEN = ("config.json", "model.safetensors.index.json", "pytorch_model.bin.index.json", MERGED)


@dataclass(frozen=True, slots=True)
class MergePlan:
    """A base and an adapter to merge.

    Attributes:
        arguments: the base's model arguments, without the adapter.
        adapter: the adapter.
        group: the merged model's group in the store; None until the base is on this machine.
    """

    arguments: Mapping[str, Any]
    adapter: NamedAdapter
    group: StoreGroup | None

    @property
    def folder(self) -> Path | None:
        """The merged model's folder, which need not exist; None if it is not known yet."""
        return None if self.group is None else _find_folder(self.group)

    def replace_source(self, recipe: Recipe) -> Recipe:
        """Return a recipe with the merged model as source; with the base if it does not exist."""
        folder = self.folder
        if folder is None or not folder.is_dir():
            arguments = {key: value for key, value in recipe.model.args.items() if key != "peft"}
            return _with_model_args(recipe, arguments)
        return _with_merged(recipe, folder)


def plan_merge(recipe: Recipe, run_path: Path) -> MergePlan | None:
    """Plan the merge of a recipe's source; None if it has no ``model.args.peft``.

    Args:
        recipe: the recipe.
        run_path: the run directory, which determines the store.

    Raises:
        UserError: the source cannot be merged, or there is no adapter.
    """
    from gapft_harness.lm_eval_bridge.samplers.merging import check_mergeable

    arguments = resolve_model_args(recipe)
    peft = arguments.pop("peft", None)
    if peft is None:
        return None
    if not isinstance(peft, str) or not peft:
        raise UserError(f"model.args: peft: found {peft!r}; expected the folder of an adapter")
    check_mergeable(arguments)
    adapter = NamedAdapter("model.args.peft", str(Path(peft).resolve()))
    folder = require_peft_folder(adapter)
    base, is_known = describe_model(arguments, Digests())
    group = None
    if is_known:
        made_from = {
            "base": base,
            "adapter": describe_adapter(folder),
            "dtype": str(arguments.get("dtype") or "auto"),
            "libraries": describe_libraries(_LIBRARIES),
        }
        group = Store.for_run(run_path).find_group(_STEP, _VERSION, made_from)
    return MergePlan(arguments, adapter, group)


def merge_source(
    recipe: Recipe, run_path: Path, report_line: Callable[[str], None]
) -> tuple[Recipe, MergedSource | None]:
    """Merge a recipe's base and adapter, if it has ``model.args.peft``.

    A merged folder of an existing run that was deleted is made again.

    Args:
        recipe: the recipe.
        run_path: the run directory, which need not exist.
        report_line: called with a line before something is merged.

    Returns:
        The recipe with the merged model as source, and the facts of the merge; None if this recipe
        names no adapter.

    Raises:
        UserError: the adapter is not LoRA, or was trained on another base, or a file was changed.
    """
    plan = plan_merge(recipe, run_path)
    if plan is None:
        _restore(recipe, run_path, report_line)
        return recipe, None
    facts = _merge(plan, recipe, run_path, report_line)
    return _with_merged(recipe, Path(facts["pretrained"])), facts


def _merge(
    plan: MergePlan, recipe: Recipe, run_path: Path, report_line: Callable[[str], None]
) -> MergedSource:
    from gapft_harness.lm_eval_bridge.samplers.merging import download_model

    if plan.group is None:
        download_model(plan.arguments)
        plan = plan_merge(recipe, run_path) or plan
    if plan.group is None:
        raise UserError(
            f"model.args: pretrained: {plan.arguments['pretrained']!r}: its files were not found "
            "on this machine; expected a model folder or a hub name"
        )
    digests, group, arguments = Digests(), plan.group, plan.arguments
    base = digests.hash_weights(find_weights_folder(arguments))
    digest = weights_hash(Path(plan.adapter.path))
    if read_training_facts(Path(plan.adapter.path)).get("adapter_sha256", digest) != digest:
        raise UserError(
            f"{plan.adapter.path}: was changed after its training (the hash of its weights differs "
            "from training.json); restore it"
        )
    require_trained_base(plan.adapter, arguments)
    folder = _find_folder(group)
    with group.claim_file(INDEX, wait=True):
        if not folder.is_dir():
            check_adapter(plan.adapter, arguments)
            report_line(f"merging {plan.adapter.path} into {arguments['pretrained']}: {folder}")
            group.create({"run": str(run_path.resolve())})
            _write_merged(plan, folder, base, digest)
        merged = digests.hash_weights(folder)
        group.store_file(INDEX, format_json({"weights_sha256": merged}).encode())
    if read_json(group.folder / INDEX).get("weights_sha256") != merged:
        raise damaged_file_error(folder, "the hash of its weights is different")
    commit = find_hub_commit(arguments)
    return {
        "pretrained": str(folder),
        "weights_sha256": merged,
        "stored": group.name,
        "base": {
            "pretrained": str(recipe.model.args["pretrained"]),
            **({} if commit is None else {"revision": commit}),
            **({"subfolder": s} if (s := arguments.get("subfolder")) else {}),
            "weights_sha256": base,
        },
        "adapter": {"path": plan.adapter.path, "weights_sha256": digest},
        "rounds": [],
    }


def _write_merged(plan: MergePlan, folder: Path, base: str, adapter: str) -> None:
    """Write the merged folder, complete or not at all; the group's claim must be held."""
    from gapft_harness.lm_eval_bridge.samplers.merging import save_merged_weights
    from gapft_harness.training.adapter import write_folder

    source = find_weights_folder(plan.arguments)
    with write_folder(folder) as partial:
        dtype = save_merged_weights(plan.arguments, plan.adapter, partial)
        small, _ = find_model_files(source)
        for file in small:
            name = file.relative_to(source)
            if str(name) not in _WRITTEN:
                (partial / name).parent.mkdir(exist_ok=True)
                shutil.copyfile(file, partial / name)
        facts = {"base_sha256": base, "adapter_sha256": adapter, "dtype": dtype}
        write_json(partial / MERGED, facts)


def _restore(recipe: Recipe, run_path: Path, report_line: Callable[[str], None]) -> None:
    """Merge the source of an existing run again if its folder was deleted."""
    if not (run_path / layout.MANIFEST).is_file():
        return
    origin = read_manifest(run_path).get("origin")
    pretrained = str(recipe.model.args["pretrained"])
    if origin is None or origin["pretrained"] != pretrained or Path(pretrained).is_dir():
        return
    base = origin["base"]
    location = {key: base[key] for key in _LOCATION if key in base}
    unmerged_recipe = _with_model_args(
        recipe, {**recipe.model.args, **location, "peft": origin["adapter"]["path"]}
    )
    plan = plan_merge(unmerged_recipe, run_path)
    assert plan is not None
    again = _merge(plan, unmerged_recipe, run_path, report_line)
    if (again["pretrained"], again["weights_sha256"]) != (pretrained, origin["weights_sha256"]):
        raise UserError(
            f"{run_path}: its merged source {pretrained} is missing, and base, adapter, libraries "
            f"or store are different now, which gives {again['pretrained']}; restore the folder, "
            "or use another --run-dir"
        )


def _find_folder(group: StoreGroup) -> Path:
    return group.folder / f"merged-{group.key[:12]}"


def _with_merged(recipe: Recipe, folder: Path) -> Recipe:
    others = {k: v for k, v in recipe.model.args.items() if k not in (*_LOCATION, "peft")}
    return _with_model_args(recipe, {"pretrained": str(folder), **others})


def _with_model_args(recipe: Recipe, arguments: Mapping[str, Any]) -> Recipe:
    model = recipe.model.model_copy(update={"args": dict(arguments)})
    return recipe.model_copy(update={"model": model})
