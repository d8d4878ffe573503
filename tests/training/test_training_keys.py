"""The keys of adapters: what decides an adapter besides its training sequences."""

from __future__ import annotations

from pathlib import Path

from gapft_harness.core.records import Arm
from gapft_harness.engine.outputs import Output
from gapft_harness.hooks.manager import load_plugins
from gapft_harness.recipe.reading import check_recipe
from gapft_harness.run_directory.directory import RunDirectory
from gapft_harness.run_directory.layout import budget_path, selection_path
from gapft_harness.stages.experiment.view import View
from gapft_harness.stages.train.stage import list_training_steps


def test_tokenizer_that_decides_the_end_token_is_in_the_key(tmp_path: Path) -> None:
    arguments = {"pretrained": str(tmp_path / "model"), "tokenizer": str(tmp_path / "tokenizer")}
    content = {"name": "a", "data": {"task": "a"}, "seeds": [13], "model": {"args": arguments}}
    recipe = check_recipe(content, "test")
    arm = Arm("gapft", 13)
    selection = Output(tmp_path, {"sequences_sha256": "a", "steps": 1})
    keys = set()
    for token in ("<|endoftext|>", "<|im_end|>"):
        for folder in map(Path, arguments.values()):
            folder.mkdir(exist_ok=True)
        (tmp_path / "tokenizer/tokenizer_config.json").write_text(f'{{"eos_token": "{token}"}}')
        view = View(RunDirectory(tmp_path / "run", recipe), load_plugins(), [arm])
        view.add(dict.fromkeys((selection_path(arm), budget_path(arm)), selection))
        keys.update(step.key for step in list_training_steps(view))
    assert len(keys) == 2
