"""Which device a process of a training takes. No GPU is at hand: torch is told that some are."""

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
from tests.training.examples import job


def of(device: object) -> Devices:
    chosen = job(Path("model"), Path("out"), [])
    arguments = {"pretrained": "model"} | ({} if device is None else {"device": device})
    return Devices.of(dataclasses.replace(chosen, model_args=arguments))


@pytest.fixture
def current(monkeypatch: pytest.MonkeyPatch) -> list[torch.device]:
    """Two GPUs, and the device that was made the current one."""
    alone = SimpleNamespace(num_processes=1, process_index=0, device=torch.device("cuda"))
    found: list[torch.device] = []

    def accelerator(cpu: bool) -> Any:
        return SimpleNamespace(
            **{**vars(alone), **({"device": torch.device("cpu")} if cpu else {})}
        )

    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "set_device", found.append)
    monkeypatch.setattr(devices, "Accelerator", accelerator)
    monkeypatch.delenv("LOCAL_WORLD_SIZE", raising=False)
    return found


def test_the_gpu_that_the_model_names_is_the_one(current: list[torch.device]) -> None:
    assert of("cuda:1").device == torch.device("cuda", 1)
    assert current == [torch.device("cuda", 1)]
    for free in (None, "cuda"):
        assert of(free).device == torch.device("cuda")
    for others in ("cpu", "mps"):
        assert of(others).device == torch.device("cpu")
    assert len(current) == 1


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
def test_what_is_not_there_is_refused(
    current: list[torch.device],
    monkeypatch: pytest.MonkeyPatch,
    device: object,
    processes: int,
    expected: str,
) -> None:
    monkeypatch.setenv("LOCAL_WORLD_SIZE", str(processes))
    with pytest.raises(UserError, match=expected):
        of(device)


def test_more_processes_than_gpus_do_for_a_training_on_the_cpu(
    current: list[torch.device], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "3")
    for others in ("cpu", "mps"):
        assert of(others).device == torch.device("cpu")
    monkeypatch.setenv("ACCELERATE_USE_CPU", "true")
    assert of(None).process_count == 1


def test_a_job_takes_its_own_device_whatever_the_process_trained_on_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    of("cpu")
    monkeypatch.setitem(PartialState._shared_state, "device", torch.device("cuda"))
    for others in ("cpu", "mps"):
        assert of(others).device == torch.device("cpu")


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_gpu_where_there_is_none_is_no_reason_to_take_the_cpu_unsaid() -> None:
    with pytest.raises(UserError, match="cuda, but torch finds no GPU"):
        of("cuda")
