"""The LoRA trainer on a tiny Llama: files, reproducibility and errors."""

from __future__ import annotations

import dataclasses
import json
import math
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from gapft_harness.core.errors import GapftError, UserError
from gapft_harness.core.weights import weights_hash
from gapft_harness.hooks.protocols import TrainingJob
from gapft_harness.plugins.trainers.lora import lora
from gapft_harness.training import adapter
from tests.chat_models import set_generation_ends
from tests.kit.tiny_models import write_byte_llama
from tests.training.examples import assert_same_weights, examples, job

N = 37  # three steps of 16, the last of 5


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_byte_llama(tmp_path_factory.mktemp("base") / "model")


def read_losses(folder: Path) -> list[tuple[float, float]]:
    """Read loss and gradient norm of every step."""
    lines = (folder / "training_log.jsonl").read_text().splitlines()
    return [(entry["loss"], entry["grad_norm"]) for entry in map(json.loads, lines)]


def load_weights(folder: Path) -> dict[str, torch.Tensor]:
    tensors: dict[str, torch.Tensor] = load_file(folder / "adapter_model.safetensors")
    return tensors


def assert_same_training(a: Path, b: Path) -> None:
    """Assert equal losses, norms and adapters up to float32 rounding."""
    assert len(read_losses(a)) == len(read_losses(b)) == 3
    for step, other_step in zip(read_losses(a), read_losses(b), strict=True):
        assert step == pytest.approx(other_step, rel=2e-5)
    assert_same_weights(a, b)


#: Ways to compute the same steps: by passes of several sizes, padded or not, and checkpoints.
SHAPES: list[dict[str, Any]] = [
    {"micro_batch": 2, "accumulation": 8},
    {"micro_batch": 16, "accumulation": 1},
    {"gradient_checkpointing": True},
    {"padding_free": True, "max_tokens": 16384, "max_length": 60},
    {"padding_free": True, "max_tokens": 60, "max_length": 60},
]


@pytest.mark.parametrize("normalization", ["token_mean", "sequence_mean", "token_sum"])
def test_way_of_computing_a_step_does_not_change_training(
    model: Path, tmp_path: Path, normalization: str
) -> None:
    def train(name: str, **shape: Any) -> Path:
        facts = lora(job(model, tmp_path / name, examples(N), normalization=normalization, **shape))
        assert facts["budget"]["steps"] == 3
        unpadded = facts["attention"]["implementation"] == "gapft_segments"
        assert unpadded == shape.get("padding_free", False)
        return tmp_path / name

    single = train("single", micro_batch=1, accumulation=16)
    for number, shape in enumerate(SHAPES):
        assert_same_training(single, train(str(number), **shape))


def test_same_examples_in_any_order_give_same_bytes(model: Path, tmp_path: Path) -> None:
    chosen = examples(20)
    facts = [
        lora(job(model, tmp_path / name, given, seed=seed, dropout=0.05))
        for name, given, seed in (("a", chosen, 13), ("b", chosen[::-1], 13), ("c", chosen, 21))
    ]
    assert read_contents(tmp_path / "a") == read_contents(tmp_path / "b")
    assert {**facts[0], "seconds": 0} == {**facts[1], "seconds": 0}
    assert facts[2]["plan_sha256"] != facts[0]["plan_sha256"]
    a, c = load_weights(tmp_path / "a"), load_weights(tmp_path / "c")
    assert all(not torch.equal(a[name], c[name]) for name in a)


def read_contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_writes_adapter_folder(model: Path, tmp_path: Path) -> None:
    chosen = examples(N)
    facts = lora(job(model, tmp_path / "a", chosen, repetitions=2))
    assert read_contents(tmp_path / "a").keys() == {
        "README.md",
        "adapter_config.json",
        "adapter_model.safetensors",
        "training.json",
        "training_log.jsonl",
    }
    assert list(tmp_path.iterdir()) == [tmp_path / "a"]
    modules = json.loads((tmp_path / "a/adapter_config.json").read_text())["target_modules"]
    assert modules == sorted(modules)  # PEFT writes a set, whose order changes between processes
    written = json.loads((tmp_path / "a/training.json").read_text())
    assert {**written, "seconds": facts["seconds"]} == facts
    assert written["attention"] == {"implementation": "sdpa"}
    assert set(written["versions"]) == {"torch", "transformers", "peft", "accelerate"}
    log = [json.loads(line) for line in (tmp_path / "a/training_log.jsonl").open()]
    assert [entry["step"] for entry in log] == [1, 2, 3, 4, 5]
    assert {entry["learning_rate"] for entry in log} == {1e-2}
    by_id = {e.problem_id: len(e.response_ids) + e.ended for e in chosen}
    for entry in log:
        assert entry["supervised_tokens"] == sum(by_id[slot] for slot in entry["examples"])
    assert sum(len(entry["examples"]) for entry in log) == facts["budget"]["exposures"] == 2 * N
    assert log[-1]["loss"] < log[0]["loss"]
    assert all(math.isfinite(entry["grad_norm"]) for entry in log)


def test_unsupervised_end_token_is_optional(model: Path, tmp_path: Path) -> None:
    bare = copy_model(model, tmp_path / "bare")
    config = json.loads((bare / "tokenizer_config.json").read_text())
    config.pop("eos_token")
    (bare / "tokenizer_config.json").write_text(json.dumps(config))
    set_generation_ends(bare, None)
    with pytest.raises(UserError, match="supervise_eos: false"):
        lora(job(bare, tmp_path / "a", examples(5)))
    lora(job(bare, tmp_path / "a", examples(5), supervise_eos=False))
    assert (tmp_path / "a").is_dir()


def copy_model(model: Path, folder: Path) -> Path:
    folder.mkdir()
    for path in model.iterdir():
        (folder / path.name).write_bytes(path.read_bytes())
    return folder


@pytest.fixture(scope="module")
def trained_adapter(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("trained") / "a"
    lora(job(model, folder, examples(N), rank=4, alpha=12))
    return folder


def test_peft_loads_adapter_with_scale(model: Path, trained_adapter: Path) -> None:
    from peft import PeftModel
    from transformers import AutoModelForCausalLM

    base = AutoModelForCausalLM.from_pretrained(model)
    ids = torch.tensor([[1, 20, 30, 40]])
    with torch.no_grad():
        before = base(ids).logits
        adapted = PeftModel.from_pretrained(base, trained_adapter)
        after = adapted(ids).logits
        with adapted.disable_adapter():
            without = adapted(ids).logits
    torch.testing.assert_close(without, before, rtol=0, atol=0)
    assert float((after - before).abs().max()) > 0.01
    layer = adapted.base_model.model.model.layers[0].self_attn.q_proj
    assert layer.scaling["default"] == 12 / 4
    assert layer.lora_A["default"].weight.shape == (4, 32)

    names = load_weights(trained_adapter)
    assert len(names) == 2 * 7 * 2  # A and B, seven projections, two layers
    assert all(".lora_A." in name or ".lora_B." in name for name in names)
    assert all(tensor.dtype == torch.float32 for tensor in names.values())


def test_bfloat16_base_has_float32_adapters(model: Path, tmp_path: Path) -> None:
    lora(job(model, tmp_path / "half", examples(N), dtype="bfloat16"))
    lora(job(model, tmp_path / "full", examples(N)))
    assert {tensor.dtype for tensor in load_weights(tmp_path / "half").values()} == {torch.float32}
    half, full = read_losses(tmp_path / "half"), read_losses(tmp_path / "full")
    assert half[0][0] == pytest.approx(full[0][0], rel=0.03)
    assert half[0][0] != full[0][0]


def test_reports_step_and_examples_of_nan_loss(model: Path, tmp_path: Path) -> None:
    broken = copy_model(model, tmp_path / "broken")
    tensors = load_file(broken / "model.safetensors")
    tensors["model.norm.weight"][3] = float("nan")
    save_file(tensors, broken / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(GapftError, match=r"gapft-seed13: step 1 of 3 has loss nan.*p\d+, p\d+"):
        lora(job(broken, tmp_path / "a", examples(N)))
    assert list(tmp_path.iterdir()) == [broken]


def test_failed_save_leaves_no_files(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(folder: Path) -> str:
        assert (folder / "adapter_config.json").exists()
        raise KeyError("condition")

    monkeypatch.setattr(adapter, "weights_hash", fail)
    with pytest.raises(KeyError):
        lora(job(model, tmp_path / "a", examples(5)))
    assert list(tmp_path.iterdir()) == []


def test_rejects_base_other_than_searched(model: Path, tmp_path: Path) -> None:
    chosen = dataclasses.replace(job(model, tmp_path / "a", examples(5)), base_sha256="0" * 64)
    with pytest.raises(UserError, match=r"differs from the searched one: its weights' hash is"):
        lora(chosen)
    assert list(tmp_path.iterdir()) == []
    right = weights_hash(model)
    facts = lora(dataclasses.replace(chosen, base_sha256=right))
    assert facts["base_sha256"] == right


@pytest.mark.parametrize(
    ("target", "message"),
    [("mlp", "LoRA cannot adapt 'mlp'.*: down_proj, embed_tokens, "),
     ("q_prog", "the model has no 'q_prog'; did you mean 'q_proj'")],
)  # fmt: skip
def test_rejects_target_module_before_loading(
    model: Path, tmp_path: Path, target: str, message: str
) -> None:
    bare = copy_model(model, tmp_path / "bare")
    (bare / "model.safetensors").unlink()
    with pytest.raises(UserError, match=f"training.target_modules: {message}"):
        lora(job(bare, tmp_path / "a", examples(5), target_modules=["q_proj", target]))


@pytest.mark.parametrize("checkpointing", [False, True])
def test_training_arms_together_gives_same_bytes(
    model: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str], checkpointing: bool
) -> None:
    def build_jobs(name: str) -> list[TrainingJob]:
        shape: dict[str, Any] = {"dropout": 0.05, "gradient_checkpointing": checkpointing}
        return [
            job(model, tmp_path / f"{name}{seed}", examples(n), seed=seed, **shape)
            for seed, n in ((13, 20), (21, 33))
        ]

    alone = [lora(arm_job) for arm_job in build_jobs("alone")]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        together = list(lora.together(build_jobs("together")))
    assert [{**f, "seconds": 0} for f in together] == [{**f, "seconds": 0} for f in alone]
    for seed in (13, 21):
        assert read_contents(tmp_path / f"alone{seed}") == read_contents(
            tmp_path / f"together{seed}"
        )
    assert capfd.readouterr().err == ""


class Stopped(Exception):
    """Raised from a job's progress callback during training."""


def stop_at(last: int) -> Callable[[int, int], None]:
    def report(done: int, total: int) -> None:
        if done == last:
            raise Stopped

    return report


def test_ignores_checkpoint_of_other_training(model: Path, tmp_path: Path) -> None:
    lora(job(model, tmp_path / "whole", examples(20)))
    other = dataclasses.replace(job(model, tmp_path / "a", examples(21)), checkpoint_steps=1)
    with pytest.raises(Stopped):
        lora(dataclasses.replace(other, progress=stop_at(1)))
    (tmp_path / ".a.checkpoint").read_bytes()
    lora(job(model, tmp_path / "a", examples(20)))
    assert read_contents(tmp_path / "a") == read_contents(tmp_path / "whole")


@pytest.mark.parametrize("checkpointing", [False, True])
def test_reports_progress_without_printing(
    model: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str], checkpointing: bool
) -> None:
    seen: list[tuple[int, int]] = []
    chosen = job(model, tmp_path / "a", examples(N), gradient_checkpointing=checkpointing)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        lora(dataclasses.replace(chosen, progress=lambda done, total: seen.append((done, total))))
    assert seen == [(1, 3), (2, 3), (3, 3)]
    captured = capfd.readouterr()
    assert captured.out + captured.err == ""
