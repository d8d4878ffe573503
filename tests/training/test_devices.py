"""The device and memory that a training uses, and bases larger than a GPU. GPUs are simulated."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from accelerate import dispatch_model

from gapft_harness.core.errors import UserError
from gapft_harness.core.pretrained import build_meta_model
from gapft_harness.core.records import Decoding
from gapft_harness.hooks.protocols import SearchedPool
from gapft_harness.training import grpo, lora, memory
from gapft_harness.training.devices import check_dtype, choose_device
from gapft_harness.training.memory import estimate_memory
from gapft_harness.training.model import add_lora, load_base
from tests.training.examples import assert_same_weights, examples, job, settings


@pytest.fixture
def selected_devices(monkeypatch: pytest.MonkeyPatch) -> list[torch.device]:
    """Simulate two GPUs; collect the devices that were made current."""
    devices_set: list[torch.device] = []
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "set_device", devices_set.append)
    return devices_set


def test_uses_gpu_named_in_model_args(selected_devices: list[torch.device]) -> None:
    assert choose_device("cuda:1") == torch.device("cuda", 1)
    assert selected_devices == [torch.device("cuda", 1)]
    for free in (None, "cuda"):
        assert choose_device(free) == torch.device("cuda")
    for device in ("cpu", "mps"):
        assert choose_device(device) == torch.device("cpu")
    assert len(selected_devices) == 1


@pytest.mark.parametrize(
    ("device", "expected"),
    [
        ("cuda:2", r"cuda:2, but this process sees 2 GPUs"),
        ("cuda one", r"model\.args\.device: unknown device 'cuda one'"),
        (1, r"model\.args\.device: unknown device 1"),
    ],
)
def test_rejects_unavailable_device(
    selected_devices: list[torch.device], device: object, expected: str
) -> None:
    with pytest.raises(UserError, match=expected):
        choose_device(device)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_missing_gpu_does_not_fall_back_to_cpu() -> None:
    with pytest.raises(UserError, match="cuda, but this process sees 0 GPUs"):
        choose_device("cuda")


def test_rejects_dtype_unsupported_by_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Torch's answers for such a GPU are simulated."""
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation: False)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "Tesla V100")
    device = torch.device("cuda", 0)
    with pytest.raises(UserError, match=r"Tesla V100 .* not compute in bfloat16; .* float32"):
        check_dtype(settings(dtype="bfloat16"), device)
    check_dtype(settings(dtype="float32"), device)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_estimate_is_that_of_the_real_model(model: Path, dtype: str) -> None:
    arguments = {"pretrained": str(model)}
    chosen = settings(dtype=dtype, rank=4)
    estimate = estimate_memory(build_meta_model(arguments, dtype=chosen.dtype), chosen)
    base = load_base(arguments, chosen)
    assert estimate.weights == sum(p.nbytes for p in base.parameters())
    trained = [p for p in add_lora(base, chosen, 1).parameters() if p.requires_grad]
    # weight, gradient, two states of the optimizer
    assert estimate.adapter == 4 * sum(p.nbytes for p in trained)


@pytest.mark.parametrize(
    ("free", "device", "expected"),
    [(1 << 40, None, None), (100_000, None, "auto"), (100_000, "cuda:0", None)],
)
def test_spreads_base_that_is_larger_than_a_gpu(
    selected_devices: list[torch.device],
    model: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    free: int,
    device: str | None,
    expected: str | None,
) -> None:
    """Not over GPUs beside the one that the recipe names. GRPO refuses it."""
    monkeypatch.setattr(memory, "measure_usable_memory", lambda device: free)
    monkeypatch.setattr(torch.cuda, "get_device_name", str)

    class Loaded(Exception):
        pass

    def load(model_args: Any, settings: Any, device_map: str | None = None) -> Any:
        raise Loaded(str(device_map))

    monkeypatch.setattr(lora, "load_base", load)
    chosen = job(model, tmp_path / "a", examples(3))
    chosen.model_args.update(device=device)  # type: ignore[attr-defined]
    with pytest.raises(Loaded, match=str(expected)):
        lora.train(chosen)
    if expected == "auto":
        decoding = Decoding(do_sample=True, temperature=1.0, max_gen_toks=8)
        searched = SearchedPool([], {}, decoding, None)  # type: ignore[arg-type]
        with pytest.raises(UserError, match="grpo needs a base that fits one GPU"):
            grpo.train_grpo(replace(chosen, searched=searched))


@pytest.mark.parametrize("padding_free", [False, True])
@pytest.mark.parametrize("head_is_last", [True, False])
def test_spread_base_trains_the_same(
    model: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    padding_free: bool,
    head_is_last: bool,
) -> None:
    """Half of it is on a GPU, if there is one; else accelerate's hooks alone are tested."""
    shape = {"padding_free": padding_free, "repetitions": 2}
    lora.train(job(model, tmp_path / "whole", examples(12), **shape))
    other = "cuda:0" if torch.cuda.is_available() else "cpu"
    first = ("model.embed_tokens", "model.rotary_emb", "model.layers.0")
    second = ("model.layers.1", "model.norm", "lm_head")
    device_map = dict.fromkeys(first, "cpu") | dict.fromkeys(second, other)

    def load(*arguments: Any) -> Any:
        base = load_base(*arguments)
        return dispatch_model(base, device_map, main_device="cpu", force_hooks=True)

    monkeypatch.setattr(lora, "load_base", load)
    monkeypatch.setattr(lora, "is_larger_than_gpu", lambda *_: True)
    monkeypatch.setattr(lora, "is_output_layer_last", lambda model: head_is_last)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    lora.train(job(model, tmp_path / "spread", examples(12), **shape))
    assert_same_weights(tmp_path / "whole", tmp_path / "spread")
