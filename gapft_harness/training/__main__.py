"""``torchrun --nproc-per-node N -m gapft_harness.training RUN``: trains a run's arms.

Started once per process by torchrun, or by ``accelerate launch`` on GPUs. All processes share every
optimizer step; the first one writes. ``gapft train RUN`` seals what it finds done.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import sys
from pathlib import Path

from gapft_harness.errors import GapftError, UserError, did_you_mean
from gapft_harness.executors.jobs import ERRORS
from gapft_harness.executors.worker import die_with
from gapft_harness.pipeline import require_selected
from gapft_harness.run_directory import RunDirectory
from gapft_harness.selection import arms
from gapft_harness.train import train_here
from gapft_harness.training.launch import MARK


def main(arguments: list[str]) -> int:
    """Trains; the exit status."""
    parser = argparse.ArgumentParser(prog="gapft_harness.training", description=__doc__)
    parser.add_argument("run", type=Path, help="the run directory")
    parser.add_argument("--arm", action="append", default=[], help="only this arm; repeatable")
    parser.add_argument("--plugin", action="append", default=[], help="a plugin file; repeatable")
    parser.add_argument("--held", action="store_true", help=argparse.SUPPRESS)
    chosen = parser.parse_args(arguments)
    die_with(os.getppid())
    first = int(os.environ.get("RANK", "0")) == 0
    if "LOCAL_RANK" in os.environ and not _has_gpu():
        os.environ["ACCELERATE_USE_CPU"] = "true"

    def progress(done: int, total: int) -> None:
        if first:
            _report("progress", done, total)

    try:
        run = RunDirectory.open(chosen.run)
        require_selected(run)
        with run.lock() if first and not chosen.held else contextlib.nullcontext():
            known = {arm.name: arm for arm in arms(run.recipe)}
            if unknown := sorted(set(chosen.arm) - set(known)):
                raise UserError(f"--arm {unknown[0]}: {did_you_mean(unknown[0], known)}")
            wanted = [
                arm
                for name, arm in known.items()
                if name in (chosen.arm or known) and not (run.path / "adapters" / name).exists()
            ]
            if wanted:
                _, warnings = train_here(run, wanted, chosen.plugin, progress)
                if first:
                    _report("warnings", warnings)
    except GapftError as error:
        kind = next(known.__name__ for known in ERRORS if isinstance(error, known))
        _report("error", kind, str(error))
        return error.exit_status
    return 0


def _has_gpu() -> bool:
    import torch

    return torch.cuda.is_available()


def _report(*fields: object) -> None:
    sys.stdout.write(f"{MARK}{json.dumps(fields)}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
