"""Verification recomputes keys from the run's records and detects forged records.

The forger changes the content of a key and recomputes all keys that depend on it.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file, save_file

from gapft_harness.core.identities import content_hash
from gapft_harness.core.weights import weights_hash
from gapft_harness.run_directory import layout
from gapft_harness.store.recorded import read_groups
from tests.kit.tampering import (
    ARM,
    change_facts,
    change_json,
    change_manifest,
    change_rows,
    find_differences,
    read_facts,
    read_rows,
    seal_again,
    write_rows,
)

pytestmark = pytest.mark.xdist_group("verify")

POOL, DECISIONS = "pool/responses.parquet", f"decisions/{ARM}.parquet"

Content = dict[str, Any]


def forge_table(run: Path, table: str, change: Callable[[Content], object]) -> None:
    """Change the contents of a table's keys, recompute the keys, and seal the table."""
    contents = read_groups(read_facts(run / table)["made_from"])
    keys: dict[str, str] = {}
    recorded: dict[str, Any] = {}
    for name, content in sorted(contents.items()):  # generate before judge
        if content["step"] == "judge":
            content["responses"] = keys[content["responses"]]
        change(content)
        keys[name.partition("/")[2]] = key = content_hash(content)
        step = recorded.setdefault(content["step"], {"shared": {}, "groups": {}})
        step["groups"][key] = content
    stored = sorted(f"{step}/{key}" for step, facts in recorded.items() for key in facts["groups"])
    write_rows(run / table, read_rows(run / table), stored=stored, made_from=recorded)
    change_manifest(run, lambda m: m["stored"].update({layout.find_table_name(table): stored}))
    seal_again(run, table)


def set_value(step: str, *path: str, value: object) -> Callable[[Content], None]:
    """Return a function that changes one value of a step's contents, if it exists."""

    def change(content: Content) -> None:
        if content["step"] != step or path[0] not in content:
            return
        section: Any = content
        for key in path[:-1]:
            section = section[key]
        section[path[-1]] = value

    return change


def drop_streams(content: Content) -> None:
    content.pop("streams", None)


FORGERIES: dict[str, tuple[str, Callable[[Content], object], str]] = {
    "limit": (
        POOL,
        set_value("generate", "decoding", "max_gen_toks", value=7),
        "max_gen_toks is 7",
    ),
    "stop strings": (POOL, set_value("generate", "decoding", "until", value=["z"]), "until is"),
    "seed": (POOL, set_value("generate", "streams", "seed", value=7), "seed is 7"),
    "streams of another split": (
        POOL,
        set_value("generate", "streams", "split", value="audit"),
        "split",
    ),
    "purpose": (DECISIONS, set_value("generate", "chunk", value=3), "chunk is 3"),
    "no streams": (POOL, drop_streams, "streams"),
    "version": (POOL, set_value("generate", "version", value=0), "version is 0"),
    "backend": (POOL, set_value("generate", "sampler", "backend", value="vllm"), "backend is"),
    "arguments": (
        POOL,
        set_value("generate", "sampler", "arguments", "batch_size", value=1),
        "batch_",
    ),
    "chat": (
        POOL,
        set_value("generate", "sampler", "chat_template", value=True),
        "chat_template is",
    ),
    "weights": (
        POOL,
        set_value("generate", "sampler", "model", "files", "model.safetensors", value="0" * 64),
        "has a model with the weights",
    ),
    "adapter": (
        DECISIONS,
        set_value("generate", "sampler", "adapter", "weights", value="0" * 64),
        "weights is",
    ),
    "no adapter": (
        DECISIONS,
        set_value("generate", "sampler", "adapter", value=None),
        "no adapter",
    ),
    "an adapter of the source": (
        POOL,
        set_value("generate", "sampler", "adapter", value={}),
        "adapter",
    ),
    "verifier": (POOL, set_value("judge", "verifier", "name", value="exact"), "name is"),
    "parameters": (
        POOL,
        set_value("judge", "verifier", "parameters", value={"a": 1}),
        "parameters",
    ),
    "description": (
        POOL,
        set_value("judge", "verifier", "describes", value={"rules": 9}),
        "describes",
    ),
    "executions": (POOL, lambda content: content.update(executions=3), "executions"),
    "libraries": (
        DECISIONS,
        set_value("generate", "sampler", "libraries", "torch", value="1.0"),
        "different libraries: torch ",
    ),
    "accelerators": (
        DECISIONS,
        set_value("generate", "sampler", "accelerators", value=["GPU"]),
        "different accelerators",
    ),
    "judging": (
        DECISIONS,
        set_value("judge", "verifier", "python", value="2.7"),
        "different python",
    ),
}


@pytest.mark.parametrize(("table", "change", "expected"), FORGERIES.values(), ids=FORGERIES)
def test_detects_forged_table_keys(
    workspace: Path, run: Path, table: str, change: Callable[[Content], object], expected: str
) -> None:
    forge_table(run, table, change)
    differences = find_differences(workspace, run)
    assert any(table in line and expected in line for line in differences), differences


def test_recomputed_keys_of_unchanged_table_match(workspace: Path, run: Path) -> None:
    forge_table(run, POOL, lambda content: None)
    assert find_differences(workspace, run) == []


@pytest.mark.parametrize("part", ["made_from", "stored", "keys"])
def test_detects_keys_that_contradict_record(workspace: Path, run: Path, part: str) -> None:
    facts = read_facts(run / POOL)
    if part == "made_from":
        write_rows(run / POOL, read_rows(run / POOL), made_from={})
    elif part == "stored":
        change_manifest(run, lambda m: m["stored"]["pool"].pop())
    else:
        facts["made_from"]["generate"]["shared"]["chunk"] = 5
        write_rows(run / POOL, read_rows(run / POOL), made_from=facts["made_from"])
    seal_again(run, POOL)
    assert any(line.startswith(POOL) for line in find_differences(workspace, run))


def test_detects_sample_of_different_stream(workspace: Path, run: Path) -> None:
    change_rows(run, POOL, lambda rows: rows[1].update(seed=rows[2]["seed"]))
    (difference,) = find_differences(workspace, run)
    assert POOL in difference
    assert "seed" in difference


def forge_adapter(run: Path, arm: str, **values: object) -> None:
    """Change the contents of an adapter's key and record the new key everywhere."""
    path = run / f"adapters/{arm}/made_from.json"
    change_json(path, lambda content: content.update(values))
    key = f"train/{content_hash(json.loads(path.read_text()))}"
    change_facts(run, arm, lambda facts: facts.update(stored=key))


@pytest.mark.parametrize(
    ("key", "value", "expected"),
    [
        ("seed", 14, "seed is 14"),
        ("replicate", 1, "replicate is 1"),
        ("sequences", "0" * 64, "sequences is"),
        ("settings", {}, "settings, computed"),
        ("trainer", {"name": "grpo", "code": ""}, "trainer is grpo"),
        ("base", {"files": {"model.safetensors": "0" * 64}}, "has a model with the weights"),
        ("device", "cuda", "device is"),
        ("chat_template", True, "chat_template is"),
        ("of_a_later_version", 1, "unexpected entry of_a_later_version"),
        ("libraries", {"torch": "1.0"}, "different libraries: "),
        ("accelerators", ["GPU"], "different accelerators"),
    ],
)
def test_detects_forged_adapter_key(
    workspace: Path, run: Path, key: str, value: object, expected: str
) -> None:
    forge_adapter(run, ARM, **{key: value})
    differences = find_differences(workspace, run)
    file = f"adapters/{ARM}/made_from.json"
    where = f"{file}, settings" if key == "settings" else file
    assert any(where in line and expected.split(",")[0] in line for line in differences), (
        differences
    )


def test_detects_edited_adapter_record(workspace: Path, run: Path) -> None:
    change_json(run / f"adapters/{ARM}/made_from.json", lambda content: content.update(seed=14))
    seal_again(run, f"adapters/{ARM}")
    (difference,) = find_differences(workspace, run)
    assert difference.startswith(f"adapters/{ARM}: the key computed from made_from is train/")


def test_detects_exchanged_adapters(workspace: Path, run: Path) -> None:
    """The folders and the manifest record the exchanged weights consistently."""
    arms = (ARM, "uniform-seed13")
    folders = [run / f"adapters/{arm}" for arm in arms]
    tensors = [load_file(folder / "adapter_model.safetensors") for folder in folders]
    for arm, folder, other in zip(arms, folders, reversed(tensors), strict=True):
        (folder / "adapter_model.safetensors").unlink()
        save_file(other, folder / "adapter_model.safetensors", metadata={"format": "pt"})
        digest = weights_hash(folder)
        change_facts(run, arm, lambda facts, digest=digest: facts.update(adapter_sha256=digest))
    differences = find_differences(workspace, run)
    for arm in arms:
        assert any(f"decisions/{arm}.parquet, made_from, adapter" in line for line in differences)


def test_verifies_run_without_store(workspace: Path, run: Path) -> None:
    assert not (run.parent / ".store").exists()
    assert find_differences(workspace, run) == []
    shutil.rmtree(run / f"adapters/{ARM}")
    assert find_differences(workspace, run)
    assert not (run.parent / ".store").exists(), "and makes none"
