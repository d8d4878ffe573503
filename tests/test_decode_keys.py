"""What the key of a decode contains: weights and configuration, not the arm's name or a path."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from gapft_harness.core.records import SOURCE, Arm
from gapft_harness.engine.checker import take_unavailable
from gapft_harness.engine.outputs import Output
from gapft_harness.engine.step import Step
from gapft_harness.hooks.manager import load_plugins
from gapft_harness.recipe.reading import check_recipe
from gapft_harness.stages import descriptions
from gapft_harness.stages.decode import DecodeBuilder
from gapft_harness.stages.descriptions import describe_judging_machine
from tests.kit.plugins import build_plugin

GAPFT, SAME = Arm("gapft", 13), Arm("same", 21)

#: A sampler that only replays, as ``recorded`` does, and a verifier with a file.
PLUGIN = build_plugin(
    "class Replaying:\n    pass\n\n\nclass Verifier:\n"
    "    def __init__(self, words=''):\n        pass\n\n"
    "    def verify(self, responses, golds):\n        return []\n",
    samplers=['"replaying", Replaying, generates=False'],
    verifiers=['"with_words", Verifier'],
)

MACHINE: dict[str, Any] = {
    "sampler": {"libraries": {"torch": "2.6"}, "accelerators": [], "environment": {}},
    "verifier": {"describes": {}, "libraries": {}, "python": "3.11", "gapft-harness": "0.1.0"},
}


class Decodes:
    """A model, adapters and problems in a folder; they are only hashed."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "model").mkdir()
        (folder / "model/config.json").write_text("{}")
        (folder / "model/model.safetensors").write_text("weights")
        (folder / "problems.txt").write_text("problems")
        (folder / "words.txt").write_text("words")
        (folder / "plugin.py").write_text(PLUGIN)
        self.plugins = load_plugins([str(folder / "plugin.py")])
        self.write_adapter("adapter")

    def write_adapter(self, name: str, weights: str = "x", **config: Any) -> Path:
        path = self.folder / name
        path.mkdir(exist_ok=True)
        content = {"r": 8, "base_model_name_or_path": f"/somewhere/{name}", **config}
        (path / "adapter_config.json").write_text(json.dumps(content))
        (path / "adapter_model.safetensors").write_text(weights)
        (path / "training.json").write_text(json.dumps({"condition": name}))
        return path

    def build(
        self,
        arm: Arm = GAPFT,
        adapter: str | None = "adapter",
        *,
        sections: dict[str, Any] | None = None,
        plugins: Any = None,
        machine: dict[str, Any] = MACHINE,
        **options: Any,
    ) -> Step:
        recipe = check_recipe(
            {
                "name": "r",
                "data": {"task": "t"},
                "model": {"args": {"pretrained": str(self.folder / "model")}},
                **(sections or {}),
            },
            "recipe",
        )
        task = {
            "verifier": "with_words",
            "verifier_params": {"words": str(self.folder / "words.txt")},
            "decoding": {"max_gen_toks": 8, "until": ["\n"]},
            "episode": {"attempts": 1, "executions": 1},
        }
        builder = DecodeBuilder(recipe, task, {}, plugins or self.plugins, machine)
        loaded = None if adapter is None else Output(self.folder / adapter)
        problems = Output(self.folder / "problems.txt")
        return builder.build("decisions/x.parquet", arm, "audit", problems, loaded, **options)


@pytest.fixture
def decodes(tmp_path: Path) -> Decodes:
    return Decodes(tmp_path)


def test_arms_with_equal_adapters_share_greedy_decodes(decodes: Decodes) -> None:
    """The folder names arm, base and training; samples also depend on the training seed."""
    decodes.write_adapter("other")
    key = decodes.build().key
    assert decodes.build(SAME, "other").key == key
    assert decodes.build(samples=4).key != decodes.build(SAME, "other", samples=4).key


def change_file(name: str) -> Callable[[Decodes], object]:
    return lambda decodes: (decodes.folder / name).write_text("changed")


@pytest.mark.parametrize(
    "change",
    [
        change_file("model/model.safetensors"),
        change_file("model/config.json"),
        change_file("problems.txt"),
        change_file("words.txt"),
        lambda decodes: decodes.write_adapter("adapter", "y"),
        lambda decodes: decodes.write_adapter("adapter", r=4),
    ],
)
def test_contents_are_in_the_key(decodes: Decodes, change: Callable[[Decodes], object]) -> None:
    before = decodes.build().key
    change(decodes)
    assert decodes.build().key != before


def test_settings_are_in_the_key(decodes: Decodes) -> None:
    deployment = {"search": {"deployment": {"temperature": 0.5}}}
    keys = [
        decodes.build().key,
        decodes.build(Arm(SOURCE, 0), None).key,
        decodes.build(scale=0.5).key,
        decodes.build(samples=4).key,
        decodes.build(samples=8).key,
        decodes.build(ids=["a", "b"]).key,
        decodes.build(ids=["a"]).key,
        decodes.build(sections=deployment).key,
        decodes.build(sections={"search": {"chunk": 7}}).key,
        decodes.build(machine={**MACHINE, "sampler": {"libraries": {"torch": "2.7"}}}).key,
    ]
    assert len({*keys}) == len(keys)


def test_search_settings_without_effect_are_not_in_the_key(decodes: Decodes) -> None:
    search = {"search": {"k": 16, "temperature": 0.3, "seed": 9}}
    assert decodes.build(sections=search).key == decodes.build().key
    assert decodes.build(ids=["b", "a"]).key == decodes.build(ids=["a", "b"]).key


def test_moved_files_have_the_same_key(decodes: Decodes, tmp_path: Path) -> None:
    before = decodes.build().key
    shutil.copytree(tmp_path, tmp_path / "moved", ignore=shutil.ignore_patterns("moved"))
    moved = Decodes.__new__(Decodes)
    moved.folder, moved.plugins = tmp_path / "moved", decodes.plugins
    assert moved.build().key == before


def test_sampler_that_replays_depends_on_the_arms_name(decodes: Decodes) -> None:
    model = {"backend": "replaying", "args": {"pretrained": str(decodes.folder / "model")}}
    first = decodes.build(sections={"model": model})
    assert first.key == decodes.build(sections={"model": model}).key
    assert first.key != decodes.build(SAME, sections={"model": model}).key


def test_without_the_samplers_plugin_its_parts_are_not_compared(decodes: Decodes) -> None:
    model = {"backend": "replaying", "args": {"pretrained": str(decodes.folder / "model")}}
    recorded = decodes.build(sections={"model": model}).made_from
    verifier_alone = decodes.folder / "verifier.py"
    registration = '\n    register("replaying", Replaying, generates=False)'
    assert registration in PLUGIN
    verifier_alone.write_text(PLUGIN.replace(registration, "\n    pass"))
    unloaded = decodes.build(
        sections={"model": model},
        plugins=load_plugins([str(verifier_alone)]),
        machine={**MACHINE, "sampler": {}},
    )
    expected = take_unavailable(recorded, replace(unloaded, machine=MACHINE).made_from)
    differing = {part for part in recorded if recorded[part] != expected[part]}
    assert differing == {"code"}, "the verifier's file is another one"
    assert recorded["code"]["sampler"] == expected["code"]["sampler"]


def test_key_has_the_patch_version_of_a_judging_library(monkeypatch: pytest.MonkeyPatch) -> None:
    judge: Any = SimpleNamespace(describe=dict)
    monkeypatch.setattr(descriptions, "find_version", lambda name: "0.8.1")
    assert describe_judging_machine(judge)["libraries"]["math-verify"] == "0.8.1"
