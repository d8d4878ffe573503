"""Adapters on disk: complete or absent folders; and scaled adapters."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from safetensors import SafetensorError

from gapft_harness.core.errors import UserError
from gapft_harness.core.files import not_writable_error, sync_folder
from gapft_harness.core.weights import weights_hash


@contextlib.contextmanager
def write_folder(output: Path) -> Iterator[Path]:
    """Yield an empty folder beside ``output`` to fill, and rename it to ``output`` at the end.

    Args:
        output: the folder; it is missing or empty.

    Raises:
        GapftError: the folder cannot be written; nothing is left behind.
    """
    partial = output.with_name(f".{output.name}.partial")
    try:
        if partial.exists():  # left by an interrupted command
            shutil.rmtree(partial)
        partial.mkdir(parents=True)
        yield partial
        for file in filter(Path.is_file, partial.rglob("*")):
            with file.open("rb") as stream:
                os.fsync(stream.fileno())
        partial.rename(output)
        sync_folder(output.parent)
    except BaseException as error:
        shutil.rmtree(partial, ignore_errors=True)
        # safetensors has its own error for a full disk
        if isinstance(error, OSError | SafetensorError):
            raise not_writable_error(output, error) from error
        raise


def save_adapter(
    output: Path, model: Any, facts: Mapping[str, Any], files: Mapping[str, str]
) -> dict[str, Any]:
    """Write a standard PEFT folder with its facts, and texts such as its log.

    Args:
        output: the folder; it does not exist yet.
        facts: content of ``training.json``.
        files: further texts by file name.

    Returns:
        The written facts, with ``adapter_sha256``, the hash of the weight files.

    Raises:
        GapftError: the folder cannot be written; nothing is left behind.
    """
    with write_folder(output) as partial:
        model.save_pretrained(partial)
        _sort_config(partial / "adapter_config.json")
        written = {**facts, "adapter_sha256": weights_hash(partial)}
        for name, text in files.items():
            (partial / name).write_text(text, encoding="utf-8")
        (partial / "training.json").write_text(json.dumps(written, indent=1) + "\n", "utf-8")
    return written


def _sort_config(path: Path) -> None:
    """Sort ``target_modules``, which PEFT writes from a set, so that the bytes are reproducible."""
    config = json.loads(path.read_text(encoding="utf-8"))
    config["target_modules"] = sorted(config["target_modules"])
    path.write_text(json.dumps(config, indent=2, sort_keys=True) + "\n", encoding="utf-8")


#: Settings under which an adapter's update is lora_B times lora_A; the first value is PEFT's
#: default.
_PLAIN_LORA_VALUES: dict[str, tuple[Any, ...]] = {
    "peft_type": ("LORA",),
    "use_dora": (False, None),
    "bias": ("none",),
    "init_lora_weights": (True, False, None, "gaussian", "orthogonal", "eva"),
}
_A = ("lora_A", "lora_embedding_A")
_B = ("lora_B", "lora_embedding_B")


def _check_scalable(folder: Path) -> None:
    """Check that scaling lora_B scales an adapter's complete update.

    Raises:
        UserError: it is not a plain LoRA adapter; the message names the key of its configuration.
    """
    path = folder / "adapter_config.json"
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UserError(f"{path}: cannot be read: {error}; expected a PEFT folder") from error
    for key, allowed in _PLAIN_LORA_VALUES.items():
        if config.get(key, allowed[0]) not in allowed:
            raise UserError(
                f"{path}: {key} is {config[key]!r}, so multiplying lora_B does not scale the "
                f"complete update; expected {allowed[0]!r}"
            )


def scale_adapter(folder: Path, output: Path, scale: float, facts: Mapping[str, Any]) -> None:
    """Write a PEFT folder whose update is ``scale`` times another adapter's.

    The output's bytes depend only on the inputs.

    Args:
        folder: the adapter, a PEFT folder.
        output: the folder to write, complete or not at all; it must not exist.
        scale: α; 0 gives the source model.
        facts: content of ``scaling.json``. ``adapter_sha256``, the hash of the written weights, is
            added.

    Raises:
        UserError: ``folder`` is not a plain LoRA adapter.
        GapftError: the folder cannot be written; nothing is left behind.
    """
    from peft import load_peft_weights
    from safetensors.torch import save_file

    _check_scalable(folder)
    try:
        weights = load_peft_weights(str(folder), device="cpu")
    except (OSError, ValueError, SafetensorError) as error:
        raise UserError(f"{folder}: its weights cannot be read: {error}") from error
    with write_folder(output) as partial:
        scaled = {
            name: (weight * scale if _is_lora_b(name, folder) else weight).contiguous()
            for name, weight in weights.items()
        }
        save_file(scaled, partial / "adapter_model.safetensors", metadata={"format": "pt"})
        shutil.copyfile(folder / "adapter_config.json", partial / "adapter_config.json")
        written = {
            **facts,
            "adapter_sha256": weights_hash(partial),
        }
        (partial / "scaling.json").write_text(json.dumps(written, indent=1) + "\n", "utf-8")


def _is_lora_b(name: str, folder: Path) -> bool:
    """Return whether a weight is a lora_B (linear layer or embedding); else it is a lora_A."""
    parts = name.split(".")
    if not any(part in parts for part in _A + _B):
        raise UserError(
            f"{folder}: contains the weight {name}, so multiplying lora_B does not scale the "
            "complete update; expected only lora_A and lora_B"
        )
    return any(part in parts for part in _B)
