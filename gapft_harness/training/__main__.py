"""``torchrun --nproc-per-node N -m gapft_harness.training RUN``: the name that users type.

The command is the train stage's (``stages/train/processes.py``), which stands above this room.
"""

from __future__ import annotations

import runpy

runpy.run_module("gapft_harness.stages.train.processes", run_name="__main__")
