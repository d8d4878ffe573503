"""The study's commands: ``run`` and ``report``; ``pretrain`` and ``tasks`` are parts of ``run``."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from controlled_study.sizes import SEEDS, SIZES
from gapft_harness.core.errors import UserError


def main(arguments: Sequence[str] | None = None) -> int:
    """Does what the command line asks; gives the exit status."""
    options = _parser().parse_args(arguments)
    try:
        if options.command == "pretrain":
            if (options.base is None) != (options.seed is None):
                raise UserError("pretrain: found one of --base and --seed, expected both or none")
            from controlled_study.pretrain import pretrain

            pretrain(options.size, options.base, options.seed, options.out)
            return 0
        if options.command == "tasks":
            from controlled_study.tasks import write_tasks

            write_tasks(options.policy, options.out)
            return 0
        if options.command == "run":
            from controlled_study.driver import run_study

            return run_study(options.out.resolve(), options.size, options.seeds, options.parallel)
        from controlled_study.outcome import write_outcome

        print(write_outcome(options.folder, options.out), end="")
    except UserError as error:
        print(error, file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("interrupted; the same command goes on from here", file=sys.stderr)
        return 130
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m controlled_study", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    run = commands.add_parser("run", help="do what is left of a study")
    run.add_argument("--size", choices=SIZES, required=True)
    run.add_argument("--out", type=Path, required=True, help="the study's folder")
    run.add_argument(
        "--seeds", type=int, nargs="+", choices=SEEDS, default=SEEDS,
        help="of pre-training (default: all)",
    )  # fmt: skip
    run.add_argument("--parallel", type=int, default=2, help="policies at a time (default: 2)")
    report = commands.add_parser("report", help="hold what came out against the predictions")
    report.add_argument("folder", type=Path, metavar="DIR", help="the study's folder")
    report.add_argument("--out", type=Path, help="also write outcome.json and a figure here")
    pretrain = commands.add_parser("pretrain", help="make the base, or a policy from it")
    pretrain.add_argument("--size", choices=SIZES, required=True)
    pretrain.add_argument("--base", type=Path, help="the base of a policy; with --seed")
    pretrain.add_argument("--seed", type=int, help="of the policy's own pre-training")
    pretrain.add_argument("--out", type=Path, required=True)
    tasks = commands.add_parser("tasks", help="write a policy's tasks with their problems")
    tasks.add_argument("--policy", type=Path, required=True)
    tasks.add_argument("--out", type=Path, required=True)
    return parser


if __name__ == "__main__":
    sys.exit(main())
