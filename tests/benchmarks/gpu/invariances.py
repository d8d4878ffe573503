"""The same arm trained on a CPU and a device with every layout: ``python -m …invariances``.

Results that must not depend on a step's layout are compared by the size of each tensor's
difference, as in the CPU tests; whether a GPU gives the same bytes twice is only reported.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.table import Table
from safetensors.torch import load_file

from gapft_harness.core.records import Example
from gapft_harness.hooks.protocols import TrainingJob
from gapft_harness.training.lora import train
from tests.kit.tiny_models import write_byte_llama
from tests.training.examples import example, job

_CUTS: dict[str, dict[str, Any]] = {
    "2 x 8": {"micro_batch": 2, "accumulation": 8},
    "1 x 16": {"micro_batch": 1, "accumulation": 16},
    "16 x 1": {"micro_batch": 16, "accumulation": 1},
    "padding-free": {"padding_free": True},
    "padding-free, fused kernels": {"padding_free": True, "kernels": "fused"},
    "padding-free, 512 tokens": {"padding_free": True, "max_tokens": 512, "max_length": 512},
}
_STEPS = 6
_RATE = 5e-5  # the paper's


class _Killed(BaseException):
    """Simulates a kill; nothing in the harness catches it."""


def main(arguments: list[str]) -> int:
    """Compare; return 0."""
    parser = argparse.ArgumentParser(prog="tests.benchmarks.gpu.invariances", description=__doc__)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--hidden", type=int, default=256)
    parser.add_argument("--layers", type=int, default=8)
    parser.add_argument("--output", type=Path, default=Path("gpu_invariances.json"))
    chosen = parser.parse_args(arguments)
    examples = [example(f"p{i}", 20 + i * 37 % 200, 3 + i * 7 % 40) for i in range(16 * _STEPS)]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_byte_llama(folder / "model", hidden=chosen.hidden, layers=chosen.layers)
        rows = compare_all_ways(folder, folder / "model", examples, chosen.device)
        rows.append(compare_resumed(folder / "resumed", folder / "model", examples, chosen.device))
    chosen.output.write_text(json.dumps(rows, indent=1) + "\n")
    table = Table(*rows[0])
    for row in rows:
        table.add_row(*(f"{v:.1e}" if isinstance(v, float) else str(v) for v in row.values()))
    Console(width=140).print(table)
    return 0


def compare_all_ways(
    folder: Path, model: Path, examples: list[Example], device: str
) -> list[dict[str, Any]]:
    rows = []
    adapters: dict[tuple[str, str, str], Path] = {}
    for dtype in ("float32", "bfloat16"):
        for where in dict.fromkeys(("cpu", device)):
            for cut, shape in _CUTS.items():
                if where == "cpu" and where != device and cut != "2 x 8":
                    continue
                if shape.get("kernels") and (where, dtype) != ("cuda", "bfloat16"):
                    continue
                path = folder / f"{dtype}-{where}-{cut}".replace(" ", "")
                train(build_job(where, model, path, examples, dtype, shape))
                adapters[dtype, where, cut] = path
    for dtype in ("float32", "bfloat16"):
        first = adapters[dtype, device, "2 x 8"]
        for cut in list(_CUTS)[1:]:
            if (dtype, device, cut) not in adapters:
                continue
            what = f"{device}, {dtype}: {cut} against 2 x 8"
            rows.append(compare_adapters(what, first, adapters[dtype, device, cut]))
        what = f"{dtype}, 2 x 8: {device} against cpu"
        rows.append(compare_adapters(what, adapters[dtype, "cpu", "2 x 8"], first))
    first_path, second_path = (
        adapters["float32", device, "2 x 8"],
        adapters["bfloat16", device, "2 x 8"],
    )
    rows.append(
        compare_adapters(f"{device}, 2 x 8: bfloat16 against float32", first_path, second_path)
    )
    return rows


def compare_resumed(
    folder: Path, model: Path, examples: list[Example], device: str
) -> dict[str, Any]:
    """Compare an arm killed after its third step and resumed with an uninterrupted one."""
    shape = {"padding_free": True}

    def arm(name: str, **more: Any) -> TrainingJob:
        plain = build_job(device, model, folder / name, examples, "bfloat16", shape)
        return dataclasses.replace(plain, **more)

    def kill(done: int, total: int) -> None:
        if done == 3:
            raise _Killed

    train(arm("whole"))
    train(arm("again"))
    try:
        train(arm("broken", checkpoint_steps=1, progress=kill))
    except _Killed:
        train(arm("broken", checkpoint_steps=1))
    differences = compare_adapters("resumed against whole", folder / "whole", folder / "broken")
    bytes_of = [
        (folder / arm / "adapter_model.safetensors").read_bytes() for arm in ("whole", "again")
    ]
    differences["what"] += f"; twice the same bytes: {bytes_of[0] == bytes_of[1]}"
    return differences


def build_job(
    device: str,
    model: Path,
    output: Path,
    examples: list[Example],
    dtype: str,
    shape: Mapping[str, Any],
) -> TrainingJob:
    training_job = job(model, output, examples, dtype=dtype, learning_rate=_RATE, **shape)
    return dataclasses.replace(
        training_job, model_args={"pretrained": str(model), "device": device}
    )


def compare_adapters(what: str, first: Path, second: Path) -> dict[str, Any]:
    """Return the largest relative differences of a step's loss and of an adapter tensor."""
    logs = [
        [json.loads(line)["loss"] for line in (p / "training_log.jsonl").read_text().splitlines()]
        for p in (first, second)
    ]
    weights = [load_file(p / "adapter_model.safetensors") for p in (first, second)]
    changed = [
        float((a - weights[1][name]).norm() / a.norm())
        for name, a in weights[0].items()
        if a.norm() > 0
    ]
    return {
        "what": what,
        "loss": max(abs(a - b) / a for a, b in zip(*logs, strict=True)),
        "adapter, largest": max(changed),
        "adapter, mean": sum(changed) / len(changed),
    }


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
