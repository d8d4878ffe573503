"""The device that a training process uses. GPUs are simulated."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from accelerate.state import PartialState

from gapft_harness.core.errors import UserError
from gapft_harness.training import devices
from gapft_harness.training.devices import Devices
from tests.training.examples import job, settings


def choose_devices(device: object) -> Devices:
    chosen = job(Path("model"), Path("out"), [])
    arguments = {"pretrained": "model"} | ({} if device is None else {"device": device})
    return Devices.of(dataclasses.replace(chosen, model_args=arguments))


@pytest.fixture
def selected_devices(monkeypatch: pytest.MonkeyPatch) -> list[torch.device]:
    """Simulate two GPUs; collect the devices that were made current."""
    state = SimpleNamespace(num_processes=1, process_index=0, device=torch.device("cuda"))
    devices_set: list[torch.device] = []

    def build_accelerator(cpu: bool) -> Any:
        return SimpleNamespace(
            **{**vars(state), **({"device": torch.device("cpu")} if cpu else {})}
        )

    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "set_device", devices_set.append)
    monkeypatch.setattr(devices, "Accelerator", build_accelerator)
    monkeypatch.delenv("LOCAL_WORLD_SIZE", raising=False)
    return devices_set


def test_uses_gpu_named_in_model_args(selected_devices: list[torch.device]) -> None:
    assert choose_devices("cuda:1").device == torch.device("cuda", 1)
    assert selected_devices == [torch.device("cuda", 1)]
    for free in (None, "cuda"):
        assert choose_devices(free).device == torch.device("cuda")
    for device in ("cpu", "mps"):
        assert choose_devices(device).device == torch.device("cpu")
    assert len(selected_devices) == 1


@pytest.mark.parametrize(
    ("device", "processes", "expected"),
    [
        ("cuda:2", 1, r"no GPU cuda:2; this process sees 2 GPUs"),
        ("cuda:1", 2, r"cuda:1 names one GPU, but 2 processes need one each.*CUDA_VISIBLE_DEVICES"),
        (None, 3, r"executor\.processes: 3 processes.*sees 2; lower it.*executor\.gpus"),
        ("cuda one", 1, r"model\.args\.device: unknown device 'cuda one'"),
        (1, 1, r"model\.args\.device: unknown device 1"),
    ],
)
def test_rejects_unavailable_device(
    selected_devices: list[torch.device],
    monkeypatch: pytest.MonkeyPatch,
    device: object,
    processes: int,
    expected: str,
) -> None:
    monkeypatch.setenv("LOCAL_WORLD_SIZE", str(processes))
    with pytest.raises(UserError, match=expected):
        choose_devices(device)


def test_cpu_training_allows_more_processes_than_gpus(
    selected_devices: list[torch.device], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "3")
    for device in ("cpu", "mps"):
        assert choose_devices(device).device == torch.device("cpu")
    monkeypatch.setenv("ACCELERATE_USE_CPU", "true")
    assert choose_devices(None).process_count == 1


def test_device_does_not_depend_on_earlier_training(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    choose_devices("cpu")
    monkeypatch.setitem(PartialState._shared_state, "device", torch.device("cuda"))
    for device in ("cpu", "mps"):
        assert choose_devices(device).device == torch.device("cpu")


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_missing_gpu_does_not_fall_back_to_cpu() -> None:
    with pytest.raises(UserError, match="cuda, but torch finds no GPU"):
        choose_devices("cuda")


def test_rejects_dtype_unsupported_by_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Torch's answers for such a GPU are simulated."""
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation: False)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "Tesla V100")
    devices = Devices(None, torch.device("cuda", 0), 0, 1)
    with pytest.raises(UserError, match=r"Tesla V100 .* not compute in bfloat16; .* float32"):
        devices.check(settings(dtype="bfloat16"))
    devices.check(settings(dtype="float32"))
