"""Runs the study: policies are pre-trained, everything else is done by ``gapft run``.

Work that is done is not done again: a policy's folder is there only once it is whole, and a run
goes on by itself.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

from controlled_study.tasks import MAIN, RUNS, task_name
from gapft_harness.core.errors import UserError
from gapft_harness.core.files import write_json
from gapft_harness.run_directory import layout

ROOT: Final = Path(__file__).resolve().parent.parent
#: What a study's folder is of.
STUDY: Final = "study.json"
#: Conditions of the nulls.
NULLS: Final = "conditions=[gapft, uniform, replay]"
#: Their slots, by size.
NULL_SLOTS: Final = {"tiny": 4, "small": 96}


def run_folder(folder: Path, seed: int, run: str) -> Path:
    """The run directory of a run in a study's folder."""
    return folder / f"seed-{seed}" / run


def run_study(folder: Path, size: str, seeds: Sequence[int], parallel: int) -> int:
    """Does what is left of the study, so many policies at a time; gives the exit status.

    What fails is told with its log, and the rest goes on.

    Raises:
        UserError: the folder holds a study of another size.
    """
    folder.mkdir(parents=True, exist_ok=True)
    facts = folder / STUDY
    found = json.loads(facts.read_text("utf-8")) if facts.exists() else {"size": size}
    if found["size"] != size:
        raise UserError(
            f"{folder}: holds a study of size {found['size']}, expected {size}; give another --out"
        )
    write_json(facts, {"size": size})
    base = folder / "base"
    if not base.exists():
        _python(folder / "log.txt", "controlled_study", "pretrain", "--size", size,
                "--out", str(base))  # fmt: skip
    failed = 0
    with ThreadPoolExecutor(parallel) as pool:
        waiting = [pool.submit(_seed, folder, size, seed) for seed in seeds]
        try:
            for future in waiting:
                if error := future.exception():
                    failed += 1
                    print(f"failed: {error}", file=sys.stderr, flush=True)
        except KeyboardInterrupt:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    return int(bool(failed))


def _seed(folder: Path, size: str, seed: int) -> None:
    """A policy, its tasks and its runs."""
    home = folder / f"seed-{seed}"
    home.mkdir(exist_ok=True)
    policy, tasks, log = home / "policy", home / "tasks", home / "log.txt"
    if not policy.exists():
        _python(log, "controlled_study", "pretrain", "--size", size, "--seed", str(seed),
                "--base", str(folder / "base"), "--out", str(policy))  # fmt: skip
    if not tasks.exists():
        beside = tasks.with_name("tasks.part")
        _python(log, "controlled_study", "tasks", "--policy", str(policy), "--out", str(beside))
        beside.rename(tasks)
    for run in RUNS:
        out = run_folder(folder, seed, run)
        if not (out / layout.REPORT / "results.json").exists():
            settings = [f"data.task={task_name(run)}", f"model.args.pretrained={policy}"]
            if run != MAIN:
                settings += [NULLS, f"budget.n={NULL_SLOTS[size]}"]
            _python(
                log, "gapft_harness.cli.main", "run",
                str(ROOT / "controlled_study" / "recipes" / f"{size}.yaml"),
                "--run-dir", str(out), "--include-path", str(tasks),
                "--plugin", str(ROOT / "controlled_study" / "plugin.py"),
                *(word for setting in settings for word in ("--set", setting)),
            )  # fmt: skip
        print(f"seed {seed}: {run}", flush=True)


def _python(log: Path, *words: str) -> None:
    """Runs a module of the repository; its output goes to the end of a log."""
    paths = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    env = os.environ | {"PYTHONPATH": os.pathsep.join(paths), "OMP_NUM_THREADS": "1",
                        "TOKENIZERS_PARALLELISM": "false"}  # fmt: skip
    with log.open("ab") as out:
        done = subprocess.run(
            [sys.executable, "-m", *words], env=env, cwd=ROOT, stdout=out, stderr=out, check=False
        )
    if done.returncode:
        raise UserError(f"{log}: {words[0]} {words[1]} ended with status {done.returncode}")
