"""``torchrun --nproc-per-node N -m gapft_harness.training RUN``: train a run's adapters.

torchrun or ``accelerate launch`` starts it once per process. All processes share every optimizer
step; the first one writes. ``gapft run RUN --only train`` seals the finished adapters.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import sys
import traceback
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from gapft_harness.core.errors import ERRORS, GapftError, UserError, did_you_mean
from gapft_harness.core.processes import die_with
from gapft_harness.core.records import Arm
from gapft_harness.hooks.manager import load_plugins
from gapft_harness.run_directory.directory import RunDirectory
from gapft_harness.run_directory.lock import hold
from gapft_harness.stages.context import require_selected
from gapft_harness.stages.selection.stage import arms
from gapft_harness.stages.train.job import MARK, finished, searched_pool, train_here
from gapft_harness.stages.train.stored import groups_of, is_stored, list_stale, remove


def main(arguments: list[str]) -> int:
    """Train, and return the exit status."""
    parser = argparse.ArgumentParser(prog="gapft_harness.training", description=__doc__)
    parser.add_argument("run", type=Path, help="the run directory")
    parser.add_argument("--arm", action="append", default=[], help="only this arm; repeatable")
    parser.add_argument("--plugin", action="append", default=[], help="a plugin file; repeatable")
    parser.add_argument("--held", action="store_true", help=argparse.SUPPRESS)
    chosen = parser.parse_args(arguments)
    die_with(os.getppid())
    # removed, since transformers would leave the weights of other processes to accelerate
    fsdp = os.environ.pop("ACCELERATE_USE_FSDP", "false").lower() == "true"
    first = int(os.environ.get("RANK", "0")) == 0
    if "LOCAL_RANK" in os.environ and not _has_gpu():
        os.environ["ACCELERATE_USE_CPU"] = "true"

    def progress(done: int, total: int) -> None:
        if first and chosen.held:
            _report("progress", done, total)
        elif first:
            print(f"step {done} of {total}", flush=True)

    def tell(warnings: dict[str, list[str]]) -> None:
        if chosen.held:
            _report("warnings", warnings)
            return
        for arm, lines in warnings.items():
            for line in lines:
                print(f"warning: {arm}: {line}", file=sys.stderr)

    try:
        _refuse_other_launches()
        run = RunDirectory.open(chosen.run)
        require_selected(run)
        with hold(run.path) if first and not chosen.held else contextlib.nullcontext():
            known = _with_budget(run, chosen.arm)
            asked = [arm for name, arm in known.items() if name in (chosen.arm or known)]
            plugins = load_plugins(chosen.plugin)
            pool = partial(searched_pool, run, plugins, chosen.plugin)
            groups = groups_of(run, asked, plugins, pool)
            # every process skips stale adapters, whether the first has removed them yet or not
            stale = list_stale(run, groups)
            if first:
                remove(run, stale, print)
            done = finished(run, [arm for arm in asked if arm not in stale])
            wanted = [arm for arm in asked if arm.name not in done]
            if not chosen.arm:  # skip adapters that the store or another arm provides
                trained = {group.key for arm, group in groups.items() if arm.name in done}
                once = {groups[arm].key: arm for arm in reversed(wanted)}
                wanted = [
                    arm
                    for arm in wanted
                    if arm in once.values()
                    and groups[arm].key not in trained
                    and not is_stored(groups[arm])
                ]
            if wanted:
                _, warnings = train_here(run, wanted, chosen.plugin, progress, fsdp=fsdp)
                if first:
                    tell(warnings)
    except GapftError as error:
        if chosen.held:
            kind = next(known.__name__ for known in ERRORS if isinstance(error, known))
            _report("error", kind, str(error))
        else:
            print(f"gapft: {error}", file=sys.stderr)
        return _failed(error.exit_status)
    except (Exception, KeyboardInterrupt):
        traceback.print_exc()
        return _failed(1)
    _leave_the_group()
    return 0


def _with_budget(run: RunDirectory, chosen: Sequence[str]) -> dict[str, Arm]:
    """Return the run's arms with a training budget, by name."""
    known = {arm.name: arm for arm in arms(run.recipe)}
    budgets = run.manifest()["budgets"]
    for name in chosen:
        if name not in known:
            raise UserError(f"--arm {name}: {did_you_mean(name, known)}")
        if name not in budgets:
            raise UserError(
                f"--arm {name}: has no budget and nothing to train on: selection chose no example "
                "for it, or ran before the recipe had it"
            )
    return {name: arm for name, arm in known.items() if name in budgets}


def _failed(status: int) -> int:
    """Return the exit status of a failed process; exit immediately in a process group.

    The other processes may wait for this one in a collective operation. Leaving the group, or
    exiting the interpreter with the group's threads running, could then wait for them in turn.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    if _in_a_group():
        os._exit(status)
    return status


def _leave_the_group() -> None:
    """Stop the process group's threads and sockets before the interpreter exits.

    Otherwise they have been observed to keep a finished process from exiting.
    """
    if _in_a_group():
        from torch import distributed

        distributed.destroy_process_group()


def _in_a_group() -> bool:
    if "torch" not in sys.modules:  # failed before the import
        return False
    from torch import distributed

    return distributed.is_available() and distributed.is_initialized()


def _refuse_other_launches() -> None:
    """Refuse launcher options that training does not support, instead of ignoring them."""
    for name in ("DEEPSPEED", "MEGATRON_LM", "PARALLELISM_CONFIG"):
        if os.environ.get(f"ACCELERATE_USE_{name}", "false").lower() == "true":
            raise UserError(
                f"the launcher requests {name}, which training does not support; launch with only "
                "--multi_gpu or --use_fsdp"
            )


def _has_gpu() -> bool:
    import torch

    return torch.cuda.is_available()


def _report(*fields: object) -> None:
    sys.stdout.write(f"{MARK}{json.dumps(fields)}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
