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
from gapft_harness.core.streams import derive_key
from gapft_harness.core.weights import weights_hash
from gapft_harness.hooks.protocols import TrainingJob
from gapft_harness.plugins.trainers.lora import lora
from gapft_harness.training import adapter
from gapft_harness.training.ledger import build_ledger
from gapft_harness.training.loop import Checkpoint, run_steps
from gapft_harness.training.plan import build_sequences, plan_steps
from tests.chat_models import set_generation_ends
from tests.kit.tiny_models import write_byte_llama
from tests.training.examples import assert_same_weights, example, examples, job, settings

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


@pytest.mark.parametrize("normalization", ["token_mean", "sequence_mean", "token_sum"])
def test_accumulation_does_not_change_training(
    model: Path, tmp_path: Path, normalization: str
) -> None:
    for micro, accumulation in ((1, 16), (2, 8), (16, 1)):
        shape = {"micro_batch": micro, "accumulation": accumulation}
        chosen = job(
            model, tmp_path / str(micro), examples(N), normalization=normalization, **shape
        )
        facts = lora(chosen)
        assert facts["budget"]["steps"] == 3
    assert_same_training(tmp_path / "1", tmp_path / "2")
    assert_same_training(tmp_path / "1", tmp_path / "16")
    for ceiling in (16384, 60):
        shape = {"padding_free": True, "max_tokens": ceiling, "max_length": 60}
        unpadded = tmp_path / f"unpadded-{ceiling}"
        facts = lora(job(model, unpadded, examples(N), normalization=normalization, **shape))
        assert facts["attention"] == {
            "implementation": "gapft_segments",
            "kernel": "scaled_dot_product_attention",
        }
        assert_same_training(tmp_path / "1", unpadded)


def test_example_order_does_not_change_bytes(model: Path, tmp_path: Path) -> None:
    lora(job(model, tmp_path / "a", examples(N), dropout=0.05))
    lora(job(model, tmp_path / "b", examples(N)[::-1], dropout=0.05))
    assert read_contents(tmp_path / "a") == read_contents(tmp_path / "b")


def read_contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_same_job_gives_same_bytes(model: Path, tmp_path: Path) -> None:
    facts = [lora(job(model, tmp_path / n, examples(20), dropout=0.05)) for n in ("a", "b")]
    assert read_contents(tmp_path / "a") == read_contents(tmp_path / "b")
    assert {**facts[0], "seconds": 0} == {**facts[1], "seconds": 0}
    other = lora(job(model, tmp_path / "c", examples(20), seed=21, dropout=0.05))
    assert other["plan_sha256"] != facts[0]["plan_sha256"]
    a, c = load_weights(tmp_path / "a"), load_weights(tmp_path / "c")
    assert all(not torch.equal(a[name], c[name]) for name in a)


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


def test_supervises_end_token_as_configured(model: Path, tmp_path: Path) -> None:
    chosen = examples(20)
    counts = []
    for name in (True, False):
        lora(job(model, tmp_path / str(name), chosen, supervise_eos=name))
        log = [json.loads(line) for line in (tmp_path / str(name) / "training_log.jsonl").open()]
        counts.append(sum(entry["supervised_tokens"] for entry in log))
    assert counts[0] - counts[1] == sum(e.ended for e in chosen) == 16


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


def test_saves_lora_weights_of_seven_projections(trained_adapter: Path) -> None:
    names = load_weights(trained_adapter)
    assert len(names) == 2 * 7 * 2  # A and B, seven projections, two layers
    assert all(".lora_A." in name or ".lora_B." in name for name in names)
    assert all(tensor.dtype == torch.float32 for tensor in names.values())


def test_lm_eval_loads_adapter(model: Path, trained_adapter: Path) -> None:
    from lm_eval.models.huggingface import HFLM

    loaded = HFLM(pretrained=str(model), peft=str(trained_adapter), device="cpu", batch_size=1)
    assert loaded.model.peft_config["default"].r == 4


def test_trains_only_lora_weights(model: Path, tmp_path: Path) -> None:
    from gapft_harness.training.model import add_lora, load_base

    chosen = job(model, tmp_path / "a", examples(N))
    adapted = add_lora(load_base(chosen.model_args, settings()), settings(), 1)
    before = {name: tensor.clone() for name, tensor in adapted.state_dict().items()}
    sequences = {s.slot: s for s in build_sequences(chosen.examples, settings())}
    slots = list(sequences)
    steps = build_ledger([slots[:16], slots[16:]], sequences, settings())
    cpu = torch.device("cpu")
    checkpoint = Checkpoint.for_output(chosen.output, {}, cpu, None)
    run_steps(chosen, settings(), adapted, steps, sequences, 2, cpu, checkpoint)
    changed = {
        name for name, now in adapted.state_dict().items() if not torch.equal(now, before[name])
    }
    assert changed == {name for name in before if ".lora_A." in name or ".lora_B." in name}


def test_loop_equals_plain_peft_loop(model: Path, tmp_path: Path) -> None:
    """PEFT's own forward pass on single sequences and torch's unfused AdamW give equal losses."""
    from peft import LoraConfig, get_peft_model
    from transformers import AutoModelForCausalLM

    chosen = job(model, tmp_path / "a", examples(N), weight_decay=0.1, clip_norm=0.5)
    lora(chosen)
    sequences = {s.slot: s for s in build_sequences(chosen.examples, settings())}
    names = list(settings().target_modules)
    torch.manual_seed(derive_key(13, "train/init") >> 33)
    plain = get_peft_model(
        AutoModelForCausalLM.from_pretrained(model),
        LoraConfig(r=8, lora_alpha=16, target_modules=names, task_type="CAUSAL_LM"),
    )
    trainable = [p for p in plain.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(trainable, lr=1e-2, weight_decay=0.1, foreach=False)
    expected = []
    for step in plan_steps(sequences, settings(), 13):
        members = [sequences[slot] for slot in step]
        optimizer.zero_grad()
        loss = torch.zeros(())
        for member in members:
            ids = [*member.prompt_ids, *member.target_ids, *([2] if member.eos else [])]
            labels = [-100] * len(member.prompt_ids) + ids[len(member.prompt_ids) :]
            logits = plain(input_ids=torch.tensor([ids])).logits[0, :-1]
            loss = loss + torch.nn.functional.cross_entropy(
                logits, torch.tensor(labels[1:]), reduction="sum"
            )
        loss = loss / sum(member.supervised for member in members)
        loss.backward()  # type: ignore[no-untyped-call, unused-ignore]
        norm = torch.nn.utils.clip_grad_norm_(trainable, 0.5)
        optimizer.step()
        expected.append((loss.item(), norm.item()))
    assert expected[0][1] > 0.5  # clipping has something to clip
    for actual, target in zip(read_losses(tmp_path / "a"), expected, strict=True):
        assert actual == pytest.approx(target, rel=1e-4)


def test_gradient_checkpointing_does_not_change_training(model: Path, tmp_path: Path) -> None:
    lora(job(model, tmp_path / "off", examples(N)))
    lora(job(model, tmp_path / "on", examples(N), gradient_checkpointing=True))
    assert_same_training(tmp_path / "off", tmp_path / "on")


def test_bfloat16_base_has_float32_adapters(model: Path, tmp_path: Path) -> None:
    lora(job(model, tmp_path / "half", examples(N), dtype="bfloat16"))
    lora(job(model, tmp_path / "full", examples(N)))
    assert {tensor.dtype for tensor in load_weights(tmp_path / "half").values()} == {torch.float32}
    half, full = read_losses(tmp_path / "half"), read_losses(tmp_path / "full")
    assert half[0][0] == pytest.approx(full[0][0], rel=0.03)
    assert half[0][0] != full[0][0]


def test_rejects_or_truncates_long_example(model: Path, tmp_path: Path) -> None:
    chosen = [*examples(5), example("long", 10, 60)]
    with pytest.raises(UserError, match="problem long"):
        lora(job(model, tmp_path / "a", chosen, max_length=40))
    assert list(tmp_path.iterdir()) == []
    facts = lora(job(model, tmp_path / "a", chosen, max_length=40, too_long="truncate"))
    assert facts["truncated"] == 1


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


def test_keeps_last_good_state_after_failure(model: Path, tmp_path: Path) -> None:
    chosen = job(model, tmp_path / "a", examples(N), learning_rate=1e30)
    with pytest.raises(GapftError, match=r"step 2 of 3 has loss nan.*saved in .*\.a\.checkpoint"):
        lora(chosen)
    assert [path.name for path in tmp_path.iterdir()] == [".a.checkpoint"]
    state = torch.load(tmp_path / ".a.checkpoint", weights_only=True)
    assert [entry["step"] for entry in json.loads(state["log"])] == [1]
    assert all(torch.isfinite(tensor).all() for tensor in state["adapter"].values())


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


def test_rejects_jobs_with_different_settings_together(model: Path, tmp_path: Path) -> None:
    jobs = [job(model, tmp_path / f"{rank}", examples(5), rank=rank) for rank in (4, 8)]
    with pytest.raises(ValueError, match="the same base and settings"):
        next(lora.together(jobs))


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


def test_suggests_target_module(model: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"no 'q_prog'; did you mean 'q_proj'\?"):
        lora(job(model, tmp_path / "a", examples(5), target_modules=("q_prog",)))


def test_rejects_missing_model(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"missing: cannot be loaded for training"):
        lora(job(tmp_path / "missing", tmp_path / "a", examples(5)))


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
