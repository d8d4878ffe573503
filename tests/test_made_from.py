"""Another model has other keys in the store; the same one, wherever it lies, has the same."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from gapft_harness.hooks.manager import load_plugins
from gapft_harness.hooks.protocols import SamplerSettings
from gapft_harness.stages.generation.made_from import describe_sampler
from gapft_harness.store.store import Store
from tests.tiny_models import CHAT_TEMPLATE, byte_llama

PLUGINS = load_plugins()


def describe(store: Path, model: Path | str, chat: bool = False, **arguments: Any) -> Any:
    settings = SamplerSettings("hf", {"pretrained": str(model), **arguments}, chat_template=chat)
    return describe_sampler(settings, PLUGINS, None, Store(store))


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return byte_llama(tmp_path_factory.mktemp("model"), chat_template=CHAT_TEMPLATE)


def change_weight(folder: Path) -> None:
    weights = load_file(folder / "model.safetensors")
    weights["model.norm.weight"] = weights["model.norm.weight"] + torch.tensor(1.0)
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})


def change_end(folder: Path) -> None:
    content = json.loads((folder / "generation_config.json").read_text())
    (folder / "generation_config.json").write_text(json.dumps({**content, "eos_token_id": 7}))


def change_template(folder: Path) -> None:
    file = folder / "chat_template.jinja"
    file.write_text(file.read_text() + "!")


def test_the_same_model_has_the_same_key_wherever_it_lies(model: Path, tmp_path: Path) -> None:
    shutil.copytree(model, tmp_path / "copy")
    found, is_known = describe(tmp_path / "store", model)
    assert is_known
    assert describe(tmp_path / "store", tmp_path / "copy") == (found, True)
    json.dumps(found)


@pytest.mark.parametrize("change", [change_weight, change_end, change_template])
def test_a_changed_file_gives_another_key(
    model: Path, tmp_path: Path, change: Callable[[Path], None]
) -> None:
    shutil.copytree(model, tmp_path / "copy")
    before = describe(tmp_path / "store", tmp_path / "copy")
    change(tmp_path / "copy")
    assert describe(tmp_path / "store", tmp_path / "copy") != before


def test_how_it_is_asked_gives_another_key(model: Path, tmp_path: Path) -> None:
    found = [
        describe(tmp_path / "store", model),
        describe(tmp_path / "store", model, chat=True),
        describe(tmp_path / "store", model, dtype="bfloat16"),
    ]
    assert len({json.dumps(of) for of, _ in found}) == len(found)


def test_a_model_that_is_not_here_is_known_by_name_alone(tmp_path: Path) -> None:
    found, is_known = describe(tmp_path / "store", "owner/nonesuch")
    assert not is_known
    assert found != describe(tmp_path / "store", "owner/other")[0]
