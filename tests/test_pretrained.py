"""Parts of a model are loaded from one place, which the model's arguments name."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gapft_harness.core import pretrained
from gapft_harness.core.pretrained import ModelNotLoaded
from tests.kit.tiny_models import write_byte_llama

#: What two loaded parts have in common if they are of one model.
PARTS: dict[str, Callable[[Any], object]] = {
    "load_tokenizer": lambda tokenizer: tokenizer.get_vocab(),
    "load_config": lambda config: {**config.to_dict(), "_name_or_path": ""},
    "load_generation_config": lambda config: config.to_dict(),
    "load_model": lambda model: float(model.lm_head.weight.sum()),
    "build_meta_model": lambda model: [weight.shape for weight in model.parameters()],
}


@pytest.mark.parametrize("part", PARTS)
def test_each_part_is_read_from_the_same_place(tmp_path: Path, part: str) -> None:
    folder = write_byte_llama(tmp_path / "models" / "inner")
    load = getattr(pretrained, part)
    own = load({"pretrained": str(folder), "revision": None})
    of_subfolder = load({"pretrained": str(folder.parent), "subfolder": "inner"})
    assert PARTS[part](of_subfolder) == PARTS[part](own)
    with pytest.raises(ModelNotLoaded, match=r"model\.args: pretrained: .*cannot be loaded"):
        load({"pretrained": str(folder.parent)})


def test_a_missing_tokenizer_is_named_by_its_key(tmp_path: Path) -> None:
    arguments = {"pretrained": str(write_byte_llama(tmp_path / "model")), "tokenizer": "./nothing"}
    with pytest.raises(ModelNotLoaded, match=r"model\.args: tokenizer: '\./nothing' cannot be"):
        pretrained.load_tokenizer(arguments)


def test_a_revision_of_digits_is_a_text(tmp_path: Path) -> None:
    folder = write_byte_llama(tmp_path / "model")
    seen: list[object] = []

    class Recording:
        @staticmethod
        def from_pretrained(name: str, **options: object) -> None:
            seen.append(options["revision"])

    pretrained._load(Recording, {"pretrained": str(folder), "revision": 20261130})
    assert seen == ["20261130"]
