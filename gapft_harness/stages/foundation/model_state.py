"""Whether a model's folder holds what it held at search, without reading weights that did not move.

Weights that a run generated with are known by their hash (``source`` in the manifest). A command
hashes them again only where a file's size or time is another; small files are always hashed.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gapft_harness.core.weights import WEIGHTS, weights_folder, weights_hash
from gapft_harness.recipe.models import model_args
from gapft_harness.recipe.recipe import Recipe
from gapft_harness.run_directory.file_states import states

#: Files that decide what a model computes beside its weights: its shape, its tokens, its template.
_SMALL = (
    "config.json", "generation_config.json", "tokenizer*", "special_tokens_map.json",
    "added_tokens.json", "vocab*", "merges.txt", "chat_template*", "*.model", "*.py",
    "quantize_config.json",
)  # fmt: skip


def model_state(recipe: Recipe) -> dict[str, Any] | None:
    """The states of a model's files; None where it is neither a folder nor in the hub's cache."""
    folder = _folder(recipe)
    if folder is None:
        return None
    small = {file for pattern in _SMALL for file in folder.glob(pattern)}
    weights = {file for pattern in WEIGHTS for file in folder.glob(pattern)}
    return {
        "files": {Path(name).name: state[2] for name, state in states(small - weights).items()},
        "weights": {
            file.name: [file.stat().st_size, file.stat().st_mtime_ns] for file in sorted(weights)
        },
    }


def model_changes(
    recipe: Recipe, recorded: Mapping[str, Any], source: Mapping[str, Any]
) -> tuple[list[str], list[str]]:
    """Compares a model with what it was.

    Args:
        recipe: the run's.
        recorded: what ``model_state`` gave at search.
        source: what the manifest says of the model that generated.

    Returns:
        Sentences on what is another now, and on what could not be checked.
    """
    now, folder = model_state(recipe), _folder(recipe)
    if now is None or folder is None:
        name = recipe.model.args["pretrained"]
        return [], [f"not checked, for it is not here: the model {name}"]
    before, after = recorded["files"], now["files"]
    lines = [
        f"model, {folder / name}: {_short(after.get(name))} now, {_short(before.get(name))} then"
        for name in sorted({*before, *after})
        if before.get(name) != after.get(name)
    ]
    known = source.get("weights_sha256")
    if recorded["weights"] == now["weights"]:
        return lines, []
    if known is None:  # a server's, or one that nothing was generated with yet
        then, here = (
            {name: size for name, (size, _) in of["weights"].items()} for of in (recorded, now)
        )
        if then != here:
            return [*lines, f"model, {folder}: other weight files"], []
        return lines, [
            f"not checked: the weights in {folder}; they were written again since, their sizes are "
            "the same, and no hash of them was recorded"
        ]
    found = weights_hash(folder)
    if found != known:
        lines.append(f"model, weights in {folder}: {_short(found)} now, {_short(known)} then")
    return lines, []


def _folder(recipe: Recipe) -> Path | None:
    arguments = model_args(recipe)
    try:
        folder = weights_folder(arguments)
    except (OSError, ValueError):  # the hub's client: not in its cache, or no name of the hub
        return None
    return folder if folder.is_dir() else None


def _short(digest: str | None) -> str:
    return digest[:12] if digest else "none"
