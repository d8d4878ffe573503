"""Which weights a model folder holds: found and hashed without loading them."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gapft_harness.files import sha256

_WEIGHTS = ("*.safetensors", "*.bin", "*.gguf")


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


def weights_hash(folder: Path) -> str:
    """SHA-256 over the names and SHA-256 hashes of a folder's weight files, sorted by name."""
    digest = hashlib.sha256()
    for file in sorted({file for pattern in _WEIGHTS for file in folder.glob(pattern)}):
        digest.update(f"{file.name} {sha256(file)}\n".encode())
    return digest.hexdigest()
