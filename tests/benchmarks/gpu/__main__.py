"""Measure the device's ceilings and each way of training; print a table, write a JSON file."""

from __future__ import annotations

import argparse
import dataclasses
import gc
import json
import os
import sys
import tempfile
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.table import Table

from tests.benchmarks.gpu.device import measure_matrix_peak, synchronize
from tests.benchmarks.gpu.shapes import LLAMA_8B, SHAPES
from tests.benchmarks.gpu.ways import LITERAL, OURS, Bench, Measured


def main(arguments: list[str]) -> int:
    """Measure; return 0, or 2 without a GPU unless that is allowed."""
    parser = argparse.ArgumentParser(prog="tests.benchmarks.gpu", description=__doc__)
    parser.add_argument("--shape", choices=sorted(SHAPES), default=LLAMA_8B.name)
    parser.add_argument("--steps", type=int, default=12, help="timed steps of each way")
    parser.add_argument("--dropout", type=float, default=0.05, help="the recipe's is 0.05")
    parser.add_argument("--only", default="", metavar="NAME", help="ways with NAME in their names")
    parser.add_argument("--output", type=Path, default=Path("gpu_training.json"))
    chosen = parser.parse_args(arguments)
    shape = SHAPES[chosen.shape]
    if not torch.cuda.is_available() and shape is LLAMA_8B:
        print("no CUDA device here; --shape tiny runs on a CPU", file=sys.stderr)
        return 2
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if device.type == "cpu":
        torch.set_num_threads(1)
    peak = measure_matrix_peak(device, getattr(torch, shape.dtype))
    bench = Bench(shape, device, peak, chosen.steps, chosen.dropout)
    machine = {
        "device": torch.cuda.get_device_name() if device.type == "cuda" else "CPU",
        "cpu_cores": os.cpu_count(),
        "dtype": shape.dtype,
        "matrix_peak_tflops": peak / 1e12,
        "bandwidth_gb_per_s": measure_bandwidth(device, shape.bandwidth_bytes) / 1e9,
        "versions": {name: version(name) for name in ("torch", "transformers", "peft")},
    }
    written: dict[str, Any] = {
        "shape": shape.name,
        "dropout": chosen.dropout,
        "machine": machine,
        "ways": [],
        "out_of_memory": [],
    }
    measurements = []
    fits = {name: way for name, way in OURS.items() if way.get("kernels") != "fused"}
    ways = OURS if shape.dtype == "bfloat16" else fits  # fused kernels are for 16 bits
    for way in (way for way in [*ways, LITERAL] if chosen.only in way):
        print(f"{way} ...", file=sys.stderr, flush=True)
        try:
            with tempfile.TemporaryDirectory() as folder:
                measurements.append(
                    bench.literal() if way == LITERAL else bench.ours(way, ways[way], Path(folder))
                )
            last = measurements[-1]
            written["ways"].append({**dataclasses.asdict(last), "tokens_per_second": last.rate})
        except torch.OutOfMemoryError:
            print(f"{way}: the device has too little memory", file=sys.stderr, flush=True)
            written["out_of_memory"].append(way)
        # after each way, so that a later failure loses nothing
        chosen.output.write_text(json.dumps(written, indent=1) + "\n")
        gc.collect()  # frees the model before the next way
        if device.type == "cuda":
            torch.cuda.empty_cache()
    print_table(machine, measurements)
    return 0


def measure_bandwidth(device: torch.device, size: int) -> float:
    """Return bytes per second, read and written, of the fastest of ten copies on the device."""
    source = torch.ones(size, dtype=torch.uint8, device=device)
    target = torch.empty_like(source)
    best = float("inf")
    for _ in range(10):
        synchronize(device)
        start = time.perf_counter()
        target.copy_(source)
        synchronize(device)
        best = min(best, time.perf_counter() - start)
    return 2 * size / best


def print_table(machine: dict[str, Any], measurements: list[Measured]) -> None:
    title = (
        f"{machine['device']}: matrix peak {machine['matrix_peak_tflops']:.3g} TFLOP/s "
        f"({machine['dtype']}), memory {machine['bandwidth_gb_per_s']:.4g} GB/s"
    )
    table = Table(
        "way", "tokens/s", "s a step", "share of peak", "memory GB", "estimated", title=title
    )
    for measured in measurements:
        table.add_row(
            measured.way,
            f"{measured.rate:,.0f}",
            f"{measured.seconds / measured.steps:.3f}",
            f"{measured.share_of_peak:.1%}",
            "—" if measured.peak_gb is None else f"{measured.peak_gb:.1f}",
            f"{measured.estimated_gb:.1f}",
        )
    Console(width=140).print(table)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
