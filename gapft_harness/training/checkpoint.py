"""The state of a training between two steps, kept so that a killed one goes on from there."""

from __future__ import annotations

import hashlib
import json
import os
import pickle
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from gapft_harness.core.files import replace_file
from gapft_harness.training.machine.devices import Devices


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """One file beside an adapter's place: whole or absent, and gone once the adapter is there.

    Attributes:
        path: the file.
        key: a hash of all that the training rests on, the kind of its device among it; a file with
            another key is of no use.
        every: steps between two states that are kept; None: only the last before a failure.
    """

    path: Path
    key: str
    every: int | None

    @classmethod
    def beside(
        cls, output: Path, rests_on: Mapping[str, Any], devices: Devices, every: int | None
    ) -> Checkpoint:
        """The checkpoint of the adapter that will stand at ``output``."""
        # A GPU has random states of its own and rounds otherwise than a CPU: neither goes on with
        # the other's state.
        text = json.dumps({**rests_on, "device": devices.device.type}, sort_keys=True)
        key = hashlib.sha256(text.encode()).hexdigest()
        return cls(output.with_name(f".{output.name}.checkpoint"), key, every)

    def due(self, step: int, steps: int) -> bool:
        """Whether the state after a step is to be kept."""
        return self.every is not None and step % self.every == 0 and step < steps

    def save(
        self,
        devices: Devices,
        model: Any,
        optimizer: Any,
        log: list[dict[str, Any]],
        random: Mapping[str, torch.Tensor],
    ) -> None:
        """Keeps adapter, optimizer, log and every process's random states.

        Args:
            devices: the processes that share every step.
            model: base and adapter.
            optimizer: the adapter's.
            log: of the steps that are done.
            random: ``random_state`` of this process, taken before the step that comes next.
        """
        random_states = devices.gather(dict(random))
        if devices.first:
            state = {
                "key": self.key,
                "log": json.dumps(log),
                "adapter": {n: p.detach().cpu() for n, p in _trainable(model)},
                "optimizer": optimizer.state_dict(),
                "random": random_states,
            }
            replace_file(self.path, lambda beside: torch.save(state, beside))
        devices.wait()

    def load(self, devices: Devices, model: Any, optimizer: Any) -> list[dict[str, Any]]:
        """Takes up the state that was kept.

        Returns:
            The log of the steps that are done; empty if there is no state, or one of another
            training (a changed library, kind of device, number of processes or base).
        """
        try:
            state = torch.load(self.path, map_location="cpu", weights_only=True)
        except FileNotFoundError:
            return []
        except (RuntimeError, EOFError, pickle.UnpicklingError, ValueError):
            return []  # not ours: what we write is renamed when whole
        if not isinstance(state, dict) or state.get("key") != self.key:
            return []
        with torch.no_grad():
            for name, parameter in _trainable(model):
                parameter.copy_(state["adapter"][name])
        optimizer.load_state_dict(state["optimizer"])
        _restore(state["random"][devices.share], devices.device)
        log: list[dict[str, Any]] = json.loads(state["log"])
        return log

    def remove(self) -> None:
        """Takes the file away; none is no error."""
        self.path.unlink(missing_ok=True)
        beside = self.path.with_name(f".{self.path.name}.partial")
        if os.path.exists(beside):
            beside.unlink()


def _trainable(model: Any) -> list[tuple[str, torch.nn.Parameter]]:
    return [(n, p) for n, p in model.named_parameters() if p.requires_grad]


def random_state(device: torch.device) -> dict[str, torch.Tensor]:
    """The random states that this process's dropout masks come from."""
    state = {"cpu": torch.get_rng_state()}
    if device.type == "cuda":
        state["cuda"] = torch.cuda.get_rng_state(device)
    return state


def _restore(state: Mapping[str, torch.Tensor], device: torch.device) -> None:
    torch.set_rng_state(state["cpu"])
    if device.type == "cuda":
        torch.cuda.set_rng_state(state["cuda"], device)
