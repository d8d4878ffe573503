"""Export of adapters with model cards: sealed files and the report's figures."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from huggingface_hub import ModelCard

from gapft_harness.core.errors import UserError
from gapft_harness.core.records import Arm
from gapft_harness.exporting.cards import find_hub_name, find_model_name
from gapft_harness.exporting.kinds import ExportChoice, export
from gapft_harness.report.rendering.wording import percent
from gapft_harness.run_directory import layout
from gapft_harness.run_directory.directory import RunDirectory


def test_exports_sealed_adapters_with_cards(planted_run: RunDirectory, tmp_path: Path) -> None:
    out = tmp_path / "out"
    files = export(planted_run, "adapters", ExportChoice(out))
    assert sorted(files) == sorted(path for path in out.rglob("*") if path.is_file())
    results = json.loads((planted_run.path / "report" / "results.json").read_text())
    condition = results["conditions"]["gapft"]
    for seed in (13, 21):
        arm = Arm("gapft", seed)
        folder, sealed = out / arm.name, planted_run.path / layout.adapter_path(arm)
        for name in ("adapter_config.json", "adapter_model.safetensors"):
            assert (folder / name).read_bytes() == (sealed / name).read_bytes()
        assert (folder / "recipe.yaml").read_bytes() == (
            planted_run.path / "recipe.yaml"
        ).read_bytes()
        card = ModelCard.load(folder / "README.md")
        assert (card.data.library_name, card.data.base_model) == ("peft", "planted")
        single, mean = card.data.eval_results
        seed_results = condition["seeds"][str(seed)]
        assert single.metric_value == seed_results["pass_at_1"]
        assert single.metric_args["base_model"] == results["source"]["pass_at_1"]
        assert mean.metric_value == condition["pass_at_1"]
        assert mean.metric_args["ci95"] == condition["ci95"]
        assert mean.metric_args["seeds"] == [13, 21, 73]
        right = f"{seed_results['counts']['correct']} of {results['source']['n']}"
        assert (
            f"| Pass@1 of this adapter | {percent(seed_results['pass_at_1'])} ({right}) |"
            in card.text
        )
        assert f"| optimizer steps J | {seed_results['budget']['J']} |" in card.text
        for place in (
            layout.adapter_path(arm),
            layout.selection_path(arm),
            layout.decisions_path(arm),
        ):
            assert f"| {place} | {planted_run.manifest()['files'][place]} |" in card.text
        assert str(planted_run.path) not in card.content
    page = (planted_run.path / "report" / "report.md").read_text()
    for title in ("Contrasts", "Where the change comes from"):
        lines = card.text.split(f"## {title}\n")[1].split("\n## ")[0].splitlines()
        rows = [line for line in lines if line.startswith("|")]
        assert len(rows) > 4
        assert all(row in page for row in rows)


@pytest.mark.parametrize(
    ("pretrained", "on_hub", "name"),
    [
        ("meta-llama/Llama-3.1-8B", "meta-llama/Llama-3.1-8B", "meta-llama/Llama-3.1-8B"),
        ("/data/models/mine", None, "mine"),
        ("bundled:demo", None, "bundled:demo"),
    ],
)
def test_local_folder_has_no_hub_name(
    planted_run: RunDirectory, pretrained: str, on_hub: str | None, name: str
) -> None:
    model = planted_run.recipe.model.model_copy(update={"args": {"pretrained": pretrained}})
    recipe = planted_run.recipe.model_copy(update={"model": model})
    assert (find_hub_name(recipe), find_model_name(recipe)) == (on_hub, name)


def test_rejects_unknown_arms_and_edited_runs(planted_run: RunDirectory, tmp_path: Path) -> None:
    out = tmp_path / "out"
    with pytest.raises(UserError, match="no such adapter; it has gapft-seed13, gapft-seed21"):
        export(planted_run, "adapters", ExportChoice(out, conditions=["uniform"]))
    shutil.copytree(planted_run.path, tmp_path / "run")
    run = RunDirectory.open(tmp_path / "run")
    weights = run.path / layout.adapter_path(Arm("gapft", 21)) / "adapter_model.safetensors"
    weights.write_bytes(weights.read_bytes() + b" ")
    with pytest.raises(UserError, match=r"adapters/gapft-seed21: was changed after it was sealed"):
        export(run, "adapters", ExportChoice(out))
    run.unseal([layout.decisions_path(Arm("uniform", 13))])
    with pytest.raises(UserError, match=r"decisions/uniform-seed13.parquet: does not exist yet"):
        export(run, "adapters", ExportChoice(out, seeds=[13]))
    assert not out.exists()
