"""Which weights a model folder holds: found and hashed without loading them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from gapft_harness.core.errors import UserError
from gapft_harness.core.files import sha256

#: Names of weight files.
WEIGHTS = ("*.safetensors", "*.bin", "*.gguf")

#: Files that decide what a model computes beside its weights: its shape, its tokens, its template.
_SMALL = (
    "*.json", "tokenizer*", "vocab*", "merges.txt", "*.jinja", "additional_chat_templates/*",
    "*.model", "*.tiktoken", "*.py",
)  # fmt: skip


def model_files(folder: Path) -> tuple[set[Path], set[Path]]:
    """Find the files that decide what a model computes: small ones, and its weights."""
    small = {file for pattern in _SMALL for file in folder.glob(pattern)}
    weights = {file for pattern in WEIGHTS for file in folder.glob(pattern)}
    return small - weights, weights


def weights_folder(arguments: Mapping[str, Any]) -> Path:
    """The folder that holds a model's weight files: its own, or the hub cache's snapshot."""
    folder = Path(arguments["pretrained"])
    if not folder.is_dir():
        from huggingface_hub import snapshot_download

        # The model has been loaded by now, so its snapshot is there.
        folder = Path(
            snapshot_download(
                arguments["pretrained"],
                revision=str(arguments.get("revision", "main")),
                local_files_only=True,
            )
        )
    return folder / str(arguments.get("subfolder", ""))


def hub_commit(arguments: Mapping[str, Any]) -> str | None:
    """Return the commit of the hub's snapshot that a model is loaded from; None for a folder."""
    if Path(arguments["pretrained"]).is_dir():
        return None
    return weights_folder({**arguments, "subfolder": ""}).name  # snapshots/COMMIT


def weights_hash(folder: Path) -> str:
    """Return the SHA-256 over names and SHA-256 hashes of a folder's weight files, by name.

    Args:
        folder: of a model or an adapter.
    """
    return hash_weights(folder, sha256)


def hash_weights(folder: Path, hash_file: Callable[[Path], str]) -> str:
    """Return what ``weights_hash`` returns, with another way to hash one file.

    Args:
        folder: of a model or an adapter.
        hash_file: gives a file's SHA-256, in hexadecimal.
    """
    digest = hashlib.sha256()
    for file in sorted({file for pattern in WEIGHTS for file in folder.glob(pattern)}):
        digest.update(f"{file.name} {hash_file(file)}\n".encode())
    return digest.hexdigest()


def adapter_facts(folder: Path, name: str) -> dict[str, Any] | None:
    """What an adapter's folder says of itself, if it holds the weights that it speaks of.

    Args:
        name: of the JSON file with its facts, ``adapter_sha256`` among them.

    Returns:
        The facts; None if there is no such folder.

    Raises:
        UserError: the folder is there and not whole: half copied, or left by a trainer that was
            killed while it wrote.
    """
    if not folder.exists():
        return None
    remedy = "remove the folder and run the command again"
    try:
        facts = json.loads((folder / name).read_text("utf-8"))
        stated = facts["adapter_sha256"]
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise UserError(
            f"{folder}: is incomplete: its {name} cannot be read, or does not say adapter_sha256 "
            f"({type(error).__name__}: {error}); {remedy}"
        ) from error
    if (found := weights_hash(folder)) != stated:
        raise UserError(
            f"{folder}: is incomplete or was changed: its weight files' hash is {found[:12]}…, "
            f"{name} has {str(stated)[:12]}…; {remedy}"
        )
    return dict(facts)
