"""Entry point of ``torchrun --nproc-per-node N -m gapft_harness.training RUN``.

The command belongs to the train stage (``stages/train/processes.py``), a layer above this package.
"""

from __future__ import annotations

import runpy

runpy.run_module("gapft_harness.stages.train.processes", run_name="__main__")
