"""Compare four adapters in one pass with one after another, at Llama-3.1-8B's shape.

python -m tests.benchmarks.gpu.adapters
"""

from __future__ import annotations

import argparse
import sys

import torch

from tests.benchmarks.batched_adapters import add_adapters, compare_ways
from tests.benchmarks.gpu.shapes import LLAMA_8B, SHAPES

#: Sequences of 240 tokens per adapter in a pass.
_ROWS = (1, 2, 4)


def main(arguments: list[str]) -> int:
    """Measure; return 0, or 2 without a GPU unless that is allowed."""
    parser = argparse.ArgumentParser(prog="tests.benchmarks.gpu.adapters", description=__doc__)
    parser.add_argument("--shape", choices=sorted(SHAPES), default=LLAMA_8B.name)
    shape = SHAPES[parser.parse_args(arguments).shape]
    if not torch.cuda.is_available() and shape is LLAMA_8B:
        print("no CUDA device here; --shape tiny runs on a CPU", file=sys.stderr)
        return 2
    model = shape.model(torch.device("cuda" if torch.cuda.is_available() else "cpu"), None)
    layers = add_adapters(model)
    for rows in _ROWS:
        # bfloat16 has 8 significant bits, and sums use another order
        tolerance = 0.2 if shape.dtype == "bfloat16" else 1e-4
        figure = compare_ways(f"{shape.name}, {rows} x 240", model, layers, rows, 240, tolerance)
        print(f"{figure.name}: {figure.value:.2f} ({figure.detail})", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
