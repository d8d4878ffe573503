"""Verification detects changes that were sealed again, also in the manifest."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from gapft_harness.core.errors import UserError
from gapft_harness.stages.search.states import Window, write_split_states
from gapft_harness.stages.verify.run import verify
from gapft_harness.version import __version__
from tests.kit.tampering import (
    ARM,
    PLUGIN_ARM,
    change_config,
    change_facts,
    change_json,
    change_manifest,
    change_rows,
    find_differences,
    seal_again,
)

pytestmark = pytest.mark.xdist_group("verify")


@pytest.mark.parametrize(
    "values",
    [
        {"target_parameters": [], "layers_pattern": {}, "of_a_later_peft": False},
        {
            "target_modules": ["q_proj"],
            "target_parameters": ["experts.gate_up_proj"],
            "rank_pattern": {"experts.gate_up_proj": 16},
        },
    ],
    ids=["empty or off", "rewritten for fused experts"],
)
def test_ignores_settings_that_peft_derives(
    workspace: Path, run: Path, values: dict[str, object]
) -> None:
    for adapter in sorted((run / "adapters").iterdir()):
        change_config(run, adapter.name, **values)
    assert find_differences(workspace, run) == []


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("alpha_pattern", {"q_proj": 9999}),
        ("rank_pattern", {"q_proj": 1}),
        ("use_rslora", True),
        ("use_dora", True),
        ("init_lora_weights", "pissa"),
        ("peft_type", "IA3"),
        ("inference_mode", False),
        ("layers_to_transform", [0]),
        ("of_a_later_peft", 1),
    ],
)
def test_detects_configuration_that_changes_update(
    workspace: Path, run: Path, key: str, value: object
) -> None:
    change_config(run, ARM, **{key: value})
    where = f"adapters/{ARM}/adapter_config.json"
    differences = find_differences(workspace, run)
    assert differences[0].startswith(where)
    assert key in differences[0]
    assert any(line.startswith(f"arms {ARM} and uniform-seed13 differ in") for line in differences)


def test_detects_missing_configuration_key(workspace: Path, run: Path) -> None:
    path = run / f"adapters/{ARM}/adapter_config.json"
    change_json(path, lambda config: config.pop("lora_alpha"))
    seal_again(run, f"adapters/{ARM}")
    assert find_differences(workspace, run)[0].startswith(
        f"adapters/{ARM}/adapter_config.json: lora_alpha is 8, recomputed: 16"
    )


def test_ignores_base_path_and_peft_version(workspace: Path, run: Path) -> None:
    change_config(run, ARM, base_model_name_or_path="elsewhere", peft_version="0.0")
    for folder in (run / "adapters").iterdir():  # an earlier PEFT had no such key
        change_json(folder / "adapter_config.json", lambda config: config.pop("use_rslora"))
        seal_again(run, f"adapters/{folder.name}")
    assert find_differences(workspace, run) == []


@pytest.mark.parametrize("value", [0, 5, None])
def test_detects_changed_n(workspace: Path, run: Path, value: int | None) -> None:
    """The existing files are verified all the same."""
    change_manifest(run, lambda manifest: manifest.update(n=value))
    (run / f"adapters/{ARM}/training_log.jsonl").write_text("")
    differences = find_differences(workspace, run)
    n = json.dumps(value)
    assert f"manifest.json: n is {n}, the recipe and the pool give 4" in differences
    assert any("has 0 steps, but the plan has 3" in line for line in differences)


def test_detects_missing_n(workspace: Path, run: Path) -> None:
    change_manifest(run, lambda manifest: manifest.pop("n"))
    assert find_differences(workspace, run) == [
        "manifest.json: n is missing, so it cannot be verified"
    ]


@pytest.mark.parametrize(
    "entry",
    [
        "pool/states.parquet",
        "audit/responses.parquet",
        f"selections/{ARM}.parquet",
        f"adapters/{ARM}",
        f"decisions/{ARM}.parquet",
    ],
)
def test_detects_file_removed_from_manifest(workspace: Path, run: Path, entry: str) -> None:
    change_manifest(run, lambda manifest: manifest["files"].pop(entry))
    (difference,) = find_differences(workspace, run)
    assert difference.startswith(f"{entry}: exists, but is not sealed in the manifest")


@pytest.mark.parametrize(
    "relative", ["scaled/gapft-seed13/scaling.json", "selections/more-seed13.parquet"]
)
def test_detects_unsealed_file(workspace: Path, run: Path, relative: str) -> None:
    (run / relative).parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(run / f"selections/{ARM}.parquet", run / relative)
    (difference,) = find_differences(workspace, run)
    entry = "scaled/gapft-seed13" if "scaled" in relative else relative
    assert difference.startswith(f"{entry}: exists, but is not sealed in the manifest")


def test_ignores_unfinished_files(workspace: Path, run: Path) -> None:
    for relative in ("pool/.imported.partial/0.jsonl", "adapters/.x.checkpoint"):
        (run / relative).parent.mkdir(exist_ok=True)
        (run / relative).write_text("{}")
    assert find_differences(workspace, run) == []


WINDOW = "pool/states/1-2.parquet"


def test_detects_changed_window_states(workspace: Path, run: Path) -> None:
    write_split_states(str(run), "pool", [str(workspace / "plugin.py")], Window(1, 2))
    seal_again(run, WINDOW)
    assert find_differences(workspace, run) == []
    change_rows(run, WINDOW, lambda rows: rows[0].update(samples=3))
    (difference,) = find_differences(workspace, run)
    assert difference.startswith(f"{WINDOW}: problem ")
    assert difference.endswith(" has samples 3, but its verdicts give 2")


@pytest.mark.parametrize(
    ("key", "value"),
    [("name", "SGD"), ("betas", [0.5, 0.999]), ("eps", 1.0), ("momentum", 0.9)],
)
def test_detects_changed_optimizer_in_every_arm(
    workspace: Path, run: Path, key: str, value: object
) -> None:
    for arm in (ARM, "uniform-seed13", "all_verified-seed13", PLUGIN_ARM):
        change_facts(run, arm, lambda facts: facts["optimizer"].update({key: value}))
    differences = find_differences(workspace, run)
    assert len(differences) == 4
    assert differences[0].startswith(f"adapters/{ARM}/training.json, optimizer: ")


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("schedule", "linear"),
        ("normalization", "token_sum"),
        ("clip_norm", 2.0),
        ("weight_decay", 0.0),
        ("learning_rate", 1.0),
        ("warmup_steps", 1),
        ("micro_batch", 1),
    ],
)
def test_detects_changed_setting_in_every_arm(
    workspace: Path, run: Path, key: str, value: object
) -> None:
    for arm in (ARM, "uniform-seed13", "all_verified-seed13", PLUGIN_ARM):
        change_facts(run, arm, lambda facts: facts["settings"].update({key: value}))
    differences = find_differences(workspace, run)
    assert len(differences) == 4
    assert differences[0].startswith(f"adapters/{ARM}/training.json, settings: {key} is ")


@pytest.mark.parametrize(
    "key", ["plan_sha256", "supervised_sha256", "weights_sha256", "sequences_sha256", "optimizer"]
)
def test_detects_fact_missing_from_manifest(workspace: Path, run: Path, key: str) -> None:
    change_manifest(run, lambda manifest: manifest["training"][ARM].pop(key))
    assert find_differences(workspace, run) == [
        f"manifest.json, training of {ARM}: {key} is missing"
    ]


def test_detects_changed_sequence_end(workspace: Path, run: Path) -> None:
    for number, arm in enumerate((ARM, "uniform-seed13")):
        change_facts(run, arm, lambda facts, n=number: facts.update(end_id=n))
    where = f"adapters/{ARM}/training.json"
    differences = find_differences(workspace, run)
    assert differences[0] == f"{where}: end_id is 0, but no end of a sequence is supervised"
    assert differences[-1] == f"arms {ARM} and uniform-seed13 differ in end_id: 0 and 1"


def test_detects_different_attention(workspace: Path, run: Path) -> None:
    change_facts(
        run, ARM, lambda facts: facts.pop("attention")
    )  # earlier versions did not record it
    assert find_differences(workspace, run) == []
    other = {"implementation": "gapft_segments", "kernel": "varlen_attn"}
    change_facts(run, ARM, lambda facts: facts.update(attention=other))
    differences = find_differences(workspace, run)
    assert differences[0].startswith(f"arms {ARM} and uniform-seed13 differ in attention: ")
    assert all("differ in attention: " in line for line in differences)


def test_detects_changed_model_and_task(workspace: Path, run: Path) -> None:
    change_manifest(run, lambda manifest: manifest["source"].pop("weights_sha256"))
    assert any(
        line.startswith("manifest.json, source: weights_sha256 is None")
        for line in find_differences(workspace, run)
    )
    change_manifest(run, lambda manifest: manifest["task"].update(version="2"))
    assert any(
        " was made with a different version: '1'" in line
        for line in find_differences(workspace, run)
    )


def test_reports_different_package_version(workspace: Path, run: Path) -> None:
    change_manifest(run, lambda manifest: manifest.update(gapft_harness="0.0.9"))
    plugin = [str(workspace / "plugin.py")]
    assert verify(run, plugin).differences == []

    def forget(facts: dict[str, Any]) -> None:
        del facts["settings"]["rank"]

    change_facts(run, ARM, forget)
    report = verify(run, plugin)
    assert (
        f"adapters/{ARM}/training.json, settings: rank is missing, so it cannot be verified"
        in report.differences
    )
    assert f"version 0.0.9 of gapft-harness, but this is {__version__}" in report.remark


def test_rejects_missing_plugin(run: Path) -> None:
    with pytest.raises(
        UserError, match=r"give --plugin .*plugin\.py .*: it provides the selector 'drawn'"
    ):
        verify(run)
    (run / f"decisions/{ARM}.parquet").unlink()
    missing, unknown = verify(run).differences
    assert missing == f"decisions/{ARM}.parquet: is sealed in the manifest, but missing"
    assert "it provides the selector 'drawn'" in unknown
