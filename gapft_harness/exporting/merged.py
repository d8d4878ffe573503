"""A trained arm as a model folder: the ``pretrained`` of a next run."""

from __future__ import annotations

import shutil
from pathlib import Path

from gapft_harness.core.errors import UserError, did_you_mean
from gapft_harness.core.records import Adapter
from gapft_harness.core.weights import find_model_files, find_weights_folder
from gapft_harness.recipe.recipe import resolve_model_args
from gapft_harness.run_directory import layout
from gapft_harness.run_directory.directory import RunDirectory

#: Files that transformers writes with the merged weights, so they are not copied from the base.
_WRITTEN = ("config.json", "model.safetensors.index.json", "pytorch_model.bin.index.json")


def write_merged_model(run: RunDirectory, out: Path, name: str) -> list[Path]:
    """Write the base with an arm's adapter merged into its weights, in the dtype of the search.

    Args:
        run: the run.
        out: the folder to write.
        name: the arm's name.

    Returns:
        The paths of the files.

    Raises:
        UserError: the run has no such trained arm, its adapter was changed, or
            the base cannot be loaded.
    """
    from gapft_harness.lm_eval_bridge.samplers.merging import save_merged_weights
    from gapft_harness.training.adapter import write_folder

    arms = {arm.name: arm for arm in run.find_trained_arms()}
    if name not in arms:
        fault = f"--arm {name}:" if name else "--to merged: add --arm NAME;"
        raise UserError(f"{fault} {did_you_mean(name, arms)}")
    adapter = Adapter(arms[name], str(run.file(layout.adapter_path(arms[name]))))
    arguments = resolve_model_args(run.recipe)
    out = out.absolute()  # the working directory has a name too
    with write_folder(out) as partial:
        save_merged_weights(arguments, adapter, partial)
        base = find_weights_folder(arguments)
        small, _ = find_model_files(base)
        for file in small:
            place = partial / file.relative_to(base)
            if file.name not in _WRITTEN:
                place.parent.mkdir(exist_ok=True)
                shutil.copyfile(file, place)
    return sorted(path for path in out.rglob("*") if path.is_file())
