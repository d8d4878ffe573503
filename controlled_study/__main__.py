"""The study's commands: ``run`` and ``report``; ``pretrain`` and ``tasks`` are parts of ``run``."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from controlled_study.sizes import SEEDS, SIZES
from controlled_study.tasks import RUNS
from gapft_harness.core.errors import UserError


def main(arguments: Sequence[str] | None = None) -> int:
    """Does what the command line asks; gives the exit status."""
    options = _parser().parse_args(arguments)
    try:
        if options.command == "pretrain":
            from controlled_study.pretrain import pretrain

            pretrain(options.size, options.kind, options.seed, options.out)
            return 0
        if options.command == "tasks":
            from controlled_study.tasks import write_tasks

            write_tasks(options.out, SIZES[options.size])
            return 0
        if options.command == "run":
            from controlled_study.driver import Study, run_study

            study = Study(options.out.resolve(), options.size, tuple(options.only or RUNS))
            return run_study(study, options.seeds, options.parallel)
        from controlled_study.outcome.page import write_outcome

        print(write_outcome(options.folders, options.out), end="")
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
    run.add_argument("--parallel", type=int, default=2, help="runs at a time (default: 2)")
    run.add_argument("--only", choices=RUNS, nargs="+", help="only these runs")
    report = commands.add_parser("report", help="hold what came out against the predictions")
    report.add_argument("folders", type=Path, nargs="+", metavar="DIR", help="a study's folder")
    report.add_argument("--out", type=Path, help="also write outcome.json and outcome.md here")
    pretrain = commands.add_parser("pretrain", help="make one policy")
    pretrain.add_argument("--size", choices=SIZES, required=True)
    pretrain.add_argument("--kind", choices=("mixed", "mastery"), default="mixed")
    pretrain.add_argument("--seed", type=int, required=True)
    pretrain.add_argument("--out", type=Path, required=True)
    tasks = commands.add_parser("tasks", help="write the tasks with their problems")
    tasks.add_argument("--size", choices=SIZES, required=True)
    tasks.add_argument("--out", type=Path, required=True)
    return parser


if __name__ == "__main__":
    sys.exit(main())
