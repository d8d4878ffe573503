"""Find and hash the weight files of a model folder without loading them."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gapft_harness.core.digests import hash_file

#: Patterns of weight files.
WEIGHTS = ("*.safetensors", "*.bin")

#: Other files that determine a model's output: configuration, tokenizer, chat template, code.
_SMALL = (
    "*.json", "tokenizer*", "vocab*", "merges.txt", "*.jinja", "additional_chat_templates/*",
    "*.model", "*.tiktoken", "*.py",
)  # fmt: skip


def find_model_files(folder: Path) -> tuple[set[Path], set[Path]]:
    """Find the files that determine a model's output.

    Returns:
        The small files (configuration, tokenizer, template, code), and the weight files.
    """
    small = {file for pattern in _SMALL for file in folder.glob(pattern)}
    weights = {file for pattern in WEIGHTS for file in folder.glob(pattern)}
    return small - weights, weights


def find_weights_folder(arguments: Mapping[str, Any]) -> Path:
    """Find the folder with a model's weight files: a local folder, or a snapshot in the hub cache.

    Args:
        arguments: ``model.args``: ``pretrained``, and optionally ``revision`` and ``subfolder``.
    """
    folder = Path(arguments["pretrained"])
    if not folder.is_dir():
        from huggingface_hub import snapshot_download

        # The model was loaded before, so the snapshot is in the cache.
        folder = Path(
            snapshot_download(
                arguments["pretrained"],
                revision=str(arguments.get("revision", "main")),
                local_files_only=True,
            )
        )
    return folder / str(arguments.get("subfolder", ""))


def find_hub_commit(arguments: Mapping[str, Any]) -> str | None:
    """Find the commit of the hub snapshot that a model is loaded from; None for a local folder."""
    if Path(arguments["pretrained"]).is_dir():
        return None
    return find_weights_folder({**arguments, "subfolder": ""}).name  # snapshots/COMMIT


def weights_hash(folder: Path) -> str:
    """Hash a folder's weight files; see ``combine_hashes``.

    Args:
        folder: the folder of a model or an adapter.
    """
    files = {file for pattern in WEIGHTS for file in folder.glob(pattern)}
    return combine_hashes({file.name: hash_file(file) for file in files})


def combine_hashes(hashes: Mapping[str, str]) -> str:
    """Compute the SHA-256 over the names and SHA-256 hashes of weight files, by name."""
    digest = hashlib.sha256()
    for name, file_hash in sorted(hashes.items()):
        digest.update(f"{name} {file_hash}\n".encode())
    return digest.hexdigest()
