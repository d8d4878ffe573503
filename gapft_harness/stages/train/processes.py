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
from gapft_harness.core.processes import die_with_parent
from gapft_harness.core.records import Arm
from gapft_harness.hooks.manager import load_plugins
from gapft_harness.run_directory.directory import RunDirectory
from gapft_harness.run_directory.lock import hold_run_lock
from gapft_harness.stages.context import require_selected
from gapft_harness.stages.selection.stage import list_arms
from gapft_harness.stages.train.job import (
    REPORT_PREFIX,
    read_finished_facts,
    read_searched_pool,
    train_in_process,
)
from gapft_harness.stages.train.stored import compute_groups, find_stale, is_stored, remove_stale


def main(arguments: list[str]) -> int:
    """Train, and return the exit status."""
    parser = argparse.ArgumentParser(prog="gapft_harness.training", description=__doc__)
    parser.add_argument("run", type=Path, help="the run directory")
    parser.add_argument("--arm", action="append", default=[], help="only this arm; repeatable")
    parser.add_argument("--plugin", action="append", default=[], help="a plugin file; repeatable")
    parser.add_argument("--held", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    die_with_parent(os.getppid())
    # removed, since transformers would leave the weights of other processes to accelerate
    fsdp = os.environ.pop("ACCELERATE_USE_FSDP", "false").lower() == "true"
    is_first = int(os.environ.get("RANK", "0")) == 0
    if "LOCAL_RANK" in os.environ and not _has_gpu():
        os.environ["ACCELERATE_USE_CPU"] = "true"

    def report_progress(finished_facts: int, total: int) -> None:
        if is_first and options.held:
            _write_report("progress", finished_facts, total)
        elif is_first:
            print(f"step {finished_facts} of {total}", flush=True)

    try:
        _refuse_unsupported_launchers()
        run = RunDirectory.open(options.run)
        require_selected(run)
        with hold_run_lock(run.path) if is_first and not options.held else contextlib.nullcontext():
            arms_by_name = _find_arms_with_budget(run, options.arm)
            requested = [
                arm for name, arm in arms_by_name.items() if name in (options.arm or arms_by_name)
            ]
            plugins = load_plugins(options.plugin)
            pool = partial(read_searched_pool, run, plugins, options.plugin)
            groups = compute_groups(run, requested, plugins, pool)
            # every process skips stale adapters, whether the first has removed them yet or not
            stale = find_stale(run, groups)
            if is_first:
                remove_stale(run, stale, print)
            finished_facts = read_finished_facts(
                run, [arm for arm in requested if arm not in stale]
            )
            unfinished = [arm for arm in requested if arm.name not in finished_facts]
            if not options.arm:  # skip adapters that the store or another arm provides
                trained_keys = {
                    group.key for arm, group in groups.items() if arm.name in finished_facts
                }
                arm_by_key = {groups[arm].key: arm for arm in reversed(unfinished)}
                unfinished = [
                    arm
                    for arm in unfinished
                    if arm in arm_by_key.values()
                    and groups[arm].key not in trained_keys
                    and not is_stored(groups[arm])
                ]
            if unfinished:
                train_in_process(run, unfinished, options.plugin, report_progress, fsdp=fsdp)
    except GapftError as error:
        if options.held:
            kind = next(
                arms_by_name.__name__ for arms_by_name in ERRORS if isinstance(error, arms_by_name)
            )
            _write_report("error", kind, str(error))
        else:
            print(f"gapft: {error}", file=sys.stderr)
        return _exit_failed(error.exit_status)
    except (Exception, KeyboardInterrupt):
        traceback.print_exc()
        return _exit_failed(1)
    _leave_group()
    return 0


def _find_arms_with_budget(run: RunDirectory, names: Sequence[str]) -> dict[str, Arm]:
    """Return the run's arms with a training budget, by name."""
    arms_by_name = {arm.name: arm for arm in list_arms(run.recipe)}
    budgets = run.manifest()["budgets"]
    for name in names:
        if name not in arms_by_name:
            raise UserError(f"--arm {name}: {did_you_mean(name, arms_by_name)}")
        if name not in budgets:
            raise UserError(
                f"--arm {name}: has no budget and nothing to train on: selection chose no example "
                "for it, or ran before the recipe had it"
            )
    return {name: arm for name, arm in arms_by_name.items() if name in budgets}


def _exit_failed(status: int) -> int:
    """Return the exit status of a failed process; exit immediately in a process group.

    The other processes may wait for this one in a collective operation. Leaving the group, or
    exiting the interpreter with the group's threads running, could then wait for them in turn.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    if _is_in_group():
        os._exit(status)
    return status


def _leave_group() -> None:
    """Stop the process group's threads and sockets before the interpreter exits.

    Otherwise they have been observed to keep a finished process from exiting.
    """
    if _is_in_group():
        from torch import distributed

        distributed.destroy_process_group()


def _is_in_group() -> bool:
    if "torch" not in sys.modules:  # failed before the import
        return False
    from torch import distributed

    return distributed.is_available() and distributed.is_initialized()


def _refuse_unsupported_launchers() -> None:
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


def _write_report(*fields: object) -> None:
    sys.stdout.write(f"{REPORT_PREFIX}{json.dumps(fields)}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
