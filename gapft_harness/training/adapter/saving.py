"""Writing an adapter's folder: beside its place, then renamed; so one that is there is whole."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from gapft_harness.core.weights import weights_hash
from gapft_harness.recipe.sections import Training
from gapft_harness.training.adapter.card import model_card
from gapft_harness.training.adapter.folder import whole_folder
from gapft_harness.training.base.model import lora_config


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
    with whole_folder(output) as partial:
        model.save_pretrained(partial)
        _deterministic_config(partial / "adapter_config.json")
        written = {**facts, "adapter_sha256": weights_hash(partial)}
        lines = "".join(json.dumps(entry) + "\n" for entry in log)
        (partial / "training_log.jsonl").write_text(lines, encoding="utf-8")
        (partial / "training.json").write_text(json.dumps(written, indent=1) + "\n", "utf-8")
        (partial / "README.md").write_text(model_card(written), encoding="utf-8")
    return written


def saved_config(settings: Training) -> dict[str, Any]:
    """What ``adapter_config.json`` of an adapter under these settings holds, its base left out."""
    config = lora_config(settings)
    config.inference_mode = True  # as PEFT saves it
    return _as_saved(config)


def default_config() -> dict[str, Any]:
    """What PEFT takes where an ``adapter_config.json`` does not say a key."""
    from peft import LoraConfig

    return _as_saved(LoraConfig(target_modules=[]))


def _as_saved(config: Any) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        config.save_pretrained(folder)
        path = Path(folder) / "adapter_config.json"
        _deterministic_config(path)
        saved: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return saved


def _deterministic_config(path: Path) -> None:
    """PEFT writes ``target_modules`` from a set; sorted, the file's bytes repeat."""
    config = json.loads(path.read_text(encoding="utf-8"))
    config["target_modules"] = sorted(config["target_modules"])
    path.write_text(json.dumps(config, indent=2, sort_keys=True) + "\n", encoding="utf-8")
