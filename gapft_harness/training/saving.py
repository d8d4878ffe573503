"""Writing an adapter's folder: beside its place, then renamed; so one that is there is whole."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from safetensors import SafetensorError

from gapft_harness.files import sync_folder, unwritable
from gapft_harness.model_files import weights_hash
from gapft_harness.training.card import model_card


def save_adapter(
    output: Path, model: Any, log: Sequence[Mapping[str, Any]], facts: Mapping[str, Any]
) -> dict[str, Any]:
    """Writes a standard PEFT folder with its log, its facts and a model card.

    Args:
        output: the folder; it does not exist yet.
        model: the PEFT model.
        log: a line of ``training_log.jsonl`` each.
        facts: of ``training.json``.

    Returns:
        The facts as written: with ``adapter_sha256``, the hash of the weight files.

    Raises:
        GapftError: the folder cannot be written; nothing is left then.
    """
    partial = output.with_name(f".{output.name}.partial")
    try:
        if partial.exists():
            shutil.rmtree(partial)
        partial.mkdir(parents=True)
        model.save_pretrained(partial)
        _deterministic_config(partial / "adapter_config.json")
        written = {**facts, "adapter_sha256": weights_hash(partial)}
        lines = "".join(json.dumps(entry) + "\n" for entry in log)
        (partial / "training_log.jsonl").write_text(lines, encoding="utf-8")
        (partial / "training.json").write_text(json.dumps(written, indent=1) + "\n", "utf-8")
        (partial / "README.md").write_text(model_card(written), encoding="utf-8")
        for file in partial.iterdir():
            with file.open("rb") as stream:
                os.fsync(stream.fileno())
        partial.rename(output)
        sync_folder(output.parent)
    except BaseException as error:
        shutil.rmtree(partial, ignore_errors=True)
        # safetensors has an error of its own for a full disk
        if isinstance(error, OSError | SafetensorError):
            raise unwritable(output, error) from error
        raise
    return written


def _deterministic_config(path: Path) -> None:
    """PEFT writes ``target_modules`` from a set; sorted, the file's bytes repeat."""
    config = json.loads(path.read_text(encoding="utf-8"))
    config["target_modules"] = sorted(config["target_modules"])
    path.write_text(json.dumps(config, indent=2, sort_keys=True) + "\n", encoding="utf-8")
