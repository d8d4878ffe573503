"""``gapft verify`` passes on an unchanged run and names every later change."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file, save_file

from gapft_harness.core.weights import weights_hash
from gapft_harness.stages.verify.run import verify
from tests.kit.command import gapft, succeed
from tests.kit.tampering import (
    ARM,
    LOG,
    change_config,
    change_facts,
    change_log,
    change_manifest,
    change_rows,
    find_differences,
    read_rows,
    seal_again,
    write_rows,
)

pytestmark = pytest.mark.xdist_group("verify")


def test_verifies_untouched_run(workspace: Path) -> None:
    done = succeed("verify", "run", "--plugin", "plugin.py", cwd=workspace)
    assert "4 adapters were trained on the steps" in done.stdout
    assert "3 matched arms have n = 6, N = 48, J = 3" in done.stdout
    assert "660 verdicts of contains were judged again" in done.stdout
    assert "verified: the arms differ only" in done.stdout


def test_command_lists_every_difference(workspace: Path, run: Path) -> None:
    (run / LOG).write_text((run / LOG).read_text() + "\n")
    (run / "decisions/uniform-seed13.parquet").unlink()
    pool = run / "pool/responses.parquet"
    pool.write_bytes(pool.read_bytes()[:200])
    change_manifest(run, lambda manifest: manifest.update(gapft_harness="0.0.9"))
    done = gapft("verify", run, "--plugin", workspace / "plugin.py")
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    for line in (
        f"adapters/{ARM}: was changed after it was sealed",
        "decisions/uniform-seed13.parquet: is sealed in the manifest, but missing",
        "pool/responses.parquet: was changed after it was sealed",
        "pool: cannot be read (ArrowInvalid",
        "made by version 0.0.9",
    ):
        assert line in done.stderr
    assert "verified" not in done.stdout


@pytest.mark.parametrize("sealed_again", [False, True])
def test_detects_swapped_example(workspace: Path, run: Path, sealed_again: bool) -> None:
    path = run / f"selections/{ARM}.parquet"
    rows = read_rows(path)
    other = next(
        row
        for row in read_rows(run / "selections/all_verified-seed13.parquet")
        if row["problem_id"] not in {r["problem_id"] for r in rows}
    )
    replaced = rows[0]["problem_id"]
    rows[0] = other
    write_rows(path, rows)
    if sealed_again:
        seal_again(run, f"selections/{ARM}.parquet")
    text = "\n".join(find_differences(workspace, run))
    assert ("was changed after it was sealed" in text) == (not sealed_again)
    assert f"slot 0 has problem {other['problem_id']}, its selector chooses {replaced}" in text
    assert f"adapters/{ARM}/training.json: plan_sha256 is" in text


def test_detects_changed_response(workspace: Path, run: Path) -> None:
    def reverse(rows: list[dict[str, Any]]) -> None:
        rows[1]["response_ids"] = rows[1]["response_ids"][::-1]

    change_rows(run, f"selections/{ARM}.parquet", reverse)
    selection, training, key = find_differences(workspace, run)
    assert "does not match the evidence in the states table; differing: response_ids" in selection
    assert training.startswith(f"adapters/{ARM}/training.json: sequences_sha256 is")
    assert key.startswith(f"adapters/{ARM}/made_from.json: sequences is")


def test_detects_verdict_that_contradicts_states(workspace: Path, run: Path) -> None:
    changed = []

    def fail(rows: list[dict[str, Any]]) -> None:
        row = next(row for row in rows if row["status"] == "pass" and row["index"] == -1)
        row["status"] = "fail"
        changed.append(row["problem_id"])

    change_rows(run, "pool/responses.parquet", fail)
    text = "\n".join(find_differences(workspace, run))
    assert f"problem {changed[0]} has state 'G', but its verdicts give" in text
    assert f"problem {changed[0]}, index -1 has the verdict fail, judged again it is pass" in text


def test_detects_repeated_step(workspace: Path, run: Path) -> None:
    def repeat(lines: list[dict[str, Any]]) -> None:
        lines[1] = lines[0]

    change_log(run, repeat)
    text = "\n".join(find_differences(workspace, run))
    assert f"{LOG}, line 2: step is 1, the plan gives 2" in text
    assert f"{LOG}, line 2: examples is" in text


def test_detects_extra_step(workspace: Path, run: Path) -> None:
    change_log(run, lambda lines: lines.append(lines[-1]))
    assert find_differences(workspace, run) == [f"{LOG}: has 4 steps, but the plan has 3"]


@pytest.mark.parametrize(
    ("key", "value"), [("weight", 0.5), ("learning_rate", 1.0), ("supervised_tokens", 1)]
)
def test_detects_changed_step_values(workspace: Path, run: Path, key: str, value: float) -> None:
    change_log(run, lambda lines: lines[2].update({key: value}))
    (difference,) = find_differences(workspace, run)
    assert difference.startswith(f"{LOG}, line 3: {key} is {value}, the plan gives ")


def test_detects_changed_loss_weights(workspace: Path, run: Path) -> None:
    """Facts, manifest and log agree with each other, but not with the recipe."""

    def change(facts: dict[str, Any]) -> None:
        facts["weights_sha256"] = "0" * 64

    change_facts(run, ARM, change)
    (difference,) = find_differences(workspace, run)
    assert difference.startswith(f"adapters/{ARM}/training.json: weights_sha256 is")


def test_detects_adapter_changed_after_training(workspace: Path, run: Path) -> None:
    """Even a well hidden change contradicts the adapter that was audited."""
    folder = run / "adapters" / ARM
    tensors = load_file(folder / "adapter_model.safetensors")
    next(iter(tensors.values())).view(-1)[0] += 1
    save_file(tensors, folder / "adapter_model.safetensors", metadata={"format": "pt"})
    seal_again(run, f"adapters/{ARM}")
    text = "\n".join(find_differences(workspace, run))
    assert f"adapters/{ARM}/training.json: adapter_sha256 is" in text

    def change(facts: dict[str, Any]) -> None:
        facts["adapter_sha256"] = weights_hash(folder)

    change_facts(run, ARM, change)
    key, decoded = find_differences(workspace, run)
    assert key.startswith(f"decisions/{ARM}.parquet, made_from, adapter: weights is")
    assert decoded.startswith(f"decisions/{ARM}.parquet: was decoded with a different adapter")


def test_detects_changed_adapter_scaling(workspace: Path, run: Path) -> None:
    change_config(run, ARM, lora_alpha=32)
    difference = find_differences(workspace, run)[0]
    assert "adapter_config.json: lora_alpha is 32, recomputed: 16" in difference


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("optimizer", {"name": "AdamW", "betas": [0.9, 0.95], "eps": 1e-8}),
        ("base_sha256", "0" * 64),
    ],
)
def test_detects_arms_trained_differently(
    workspace: Path, run: Path, key: str, value: object
) -> None:
    def change(facts: dict[str, Any]) -> None:
        facts[key] = value

    change_facts(run, ARM, change)
    text = "\n".join(find_differences(workspace, run))
    assert f"arms {ARM} and uniform-seed13 differ in {key}" in text


def test_detects_replay_that_differs_between_arms(workspace: Path, run: Path) -> None:
    def swap(rows: list[dict[str, Any]]) -> None:
        rows[-1], rows[0] = rows[0], rows[-1]

    change_rows(run, "selections/uniform-seed13.parquet", swap)
    text = "\n".join(find_differences(workspace, run))
    assert "selections/uniform-seed13.parquet: slot 0 has problem " in text


def test_detects_changed_budget(workspace: Path, run: Path) -> None:
    change_manifest(run, lambda manifest: manifest["budgets"][ARM].update(tokens=1))
    (difference,) = find_differences(workspace, run)
    assert difference.startswith(f"manifest.json: the budget of {ARM} has tokens = 1")


def test_continues_after_unreadable_file(workspace: Path, run: Path) -> None:
    (run / f"selections/{ARM}.parquet").write_bytes(b"PAR1")
    seal_again(run, f"selections/{ARM}.parquet")
    (run / "adapters/uniform-seed13/training.json").unlink()
    text = "\n".join(find_differences(workspace, run))
    assert f"selections/{ARM}.parquet: cannot be read" in text
    assert "adapters/uniform-seed13: cannot be read (FileNotFoundError" in text


def test_lists_missing_parts_of_unfinished_run(workspace: Path, run: Path) -> None:
    shutil.rmtree(run / f"adapters/{ARM}")
    (run / f"decisions/{ARM}.parquet").unlink()

    def forget(manifest: dict[str, Any]) -> None:
        for relative in (f"adapters/{ARM}", f"decisions/{ARM}.parquet"):
            del manifest["files"][relative]

    change_manifest(run, forget)
    report = verify(run, [str(workspace / "plugin.py")])
    assert report.differences == []
    assert report.missing == [f"{ARM} is not trained"]


def test_rejects_folder_without_run(tmp_path: Path) -> None:
    done = gapft("verify", tmp_path)
    assert done.returncode == 2
    assert "not a run directory" in done.stderr
