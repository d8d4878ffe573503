"""Runs the study: policies are pre-trained, everything else is done by ``gapft`` commands.

Work that is done is not done again: a policy's folder is there only once it is whole, and a run
goes on by itself.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from controlled_study.sizes import SIZES
from controlled_study.splits import Kind
from controlled_study.tasks import MAIN, RUNS, task_name, write_tasks
from gapft_harness.core.errors import UserError
from gapft_harness.core.files import write_json
from gapft_harness.run_directory import layout
from gapft_harness.run_directory.tables import read_states

ROOT: Final = Path(__file__).resolve().parent.parent
#: What a study's folder is of.
STUDY: Final = "study.json"
#: Every matched condition's slots, decided between search and training; 0: nothing to train on.
SLOTS: Final = "slots.json"
#: Conditions and training seeds of the nulls.
NULLS: Final = ("conditions=[gapft, uniform, replay]", "seeds=[13]")


@dataclass(frozen=True)
class Study:
    """A study's folder.

    Attributes:
        folder: where everything is written.
        size: a name in ``SIZES``.
        parts: the runs to do.
    """

    folder: Path
    size: str
    parts: tuple[str, ...] = tuple(RUNS)
    policies: dict[tuple[int, Kind], Future[None]] = field(default_factory=dict)

    def policy(self, seed: int, kind: Kind) -> Path:
        """The folder of a policy."""
        return self.folder / f"seed-{seed}" / f"policy-{kind}"

    def run(self, seed: int, run: str) -> Path:
        """The run directory of a run."""
        return run_folder(self.folder, seed, run)

    @property
    def tasks(self) -> Path:
        """The folder of tasks, the same for all seeds."""
        return self.folder / "tasks"


def run_folder(folder: Path, seed: int, run: str) -> Path:
    """The run directory of a run in a study's folder."""
    return folder / f"seed-{seed}" / run


def run_study(study: Study, seeds: Sequence[int], parallel: int) -> int:
    """Does what is left of the study, so many things at a time; gives the exit status.

    What fails is told with its log, and the rest goes on.

    Raises:
        UserError: the folder holds a study of another size.
    """
    study.folder.mkdir(parents=True, exist_ok=True)
    facts = study.folder / STUDY
    found = {"size": study.size, "seeds": []}
    if facts.exists():
        found = json.loads(facts.read_text("utf-8"))
    if found["size"] != study.size:
        raise UserError(
            f"{study.folder}: holds a study of size {found['size']}, expected {study.size}; "
            "give another --out"
        )
    write_json(facts, {"size": study.size, "seeds": sorted({*found["seeds"], *seeds})})
    write_tasks(study.tasks, SIZES[study.size])
    failed = 0
    with ThreadPoolExecutor(parallel) as pool:
        # First in, first out, and a run comes after its policy: so none waits for ever.
        waiting: list[Future[None]] = []
        for run in study.parts:
            kind = RUNS[run]
            for seed in seeds:
                if (seed, kind) not in study.policies:
                    study.policies[seed, kind] = pool.submit(_policy, study, seed, kind)
            waiting += [pool.submit(_run, study, seed, run) for seed in seeds]
        try:
            for future in waiting:
                if error := future.exception():
                    failed += 1
                    print(f"failed: {error}", file=sys.stderr, flush=True)
        except KeyboardInterrupt:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    return int(bool(failed))


def _policy(study: Study, seed: int, kind: Kind) -> None:
    out = study.policy(seed, kind)
    if not out.exists():
        out.parent.mkdir(parents=True, exist_ok=True)
        _python(
            out.with_suffix(".log"), "controlled_study", "pretrain", "--size", study.size,
            "--seed", str(seed), "--kind", kind, "--out", str(out),
        )  # fmt: skip
    print(f"seed {seed}: {kind} policy", flush=True)


def _run(study: Study, seed: int, run: str) -> None:
    study.policies[seed, RUNS[run]].result()
    out = study.run(seed, run)
    log = out.with_suffix(".log")
    settings = [
        f"data.task={task_name(run)}",
        f"model.args.pretrained={study.policy(seed, RUNS[run])}",
        *(() if run == MAIN else NULLS),
    ]
    tasks = ("--include-path", str(study.tasks))
    if not (out / layout.REPORT / "results.json").exists():
        slots, where = out / SLOTS, [str(_recipe(study.size)), "--run-dir", str(out)]
        if not slots.exists():
            _gapft(log, "run", *where, *_set(settings), *tasks, "--only", "search")
            _gapft(log, "run", str(out), "--only", "states")
            write_json(slots, {"n": slots_of(out, gold=run == MAIN)})
        n = json.loads(slots.read_text("utf-8"))["n"]
        if n:
            settings.append(f"budget.n={n}")
            _gapft(log, "run", *where, *_set(settings), *tasks)
    print(f"seed {seed}: {run}", flush=True)


def slots_of(run: Path, gold: bool) -> int:
    """Slots of all matched conditions: what search recovered, or less where G or U has less.

    The largest even number (``repetition`` takes halves) that is no more than the pool's problems
    in S, in G, and where gold labels are compared in U. Nothing else of a run has a say.
    """
    states = "".join(row.state for row in read_states(run / layout.states("pool")))
    least = min(states.count(state) for state in ("GSU" if gold else "GS"))
    return least // 2 * 2


def _recipe(size: str) -> Path:
    return ROOT / "controlled_study" / "recipes" / f"{size}.yaml"


def _set(settings: Sequence[str]) -> list[str]:
    return [word for setting in settings for word in ("--set", setting)]


def _gapft(log: Path, *words: str) -> None:
    plugin = ROOT / "controlled_study" / "plugin.py"
    _python(log, "gapft_harness.cli.main", *words, "--plugin", str(plugin))


def _python(log: Path, *words: str) -> None:
    """Runs a module of the repository; its output goes to the end of a log."""
    paths = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    # Several processes share a GPU: none may keep memory that it does not use.
    env = os.environ | {"PYTHONPATH": os.pathsep.join(paths), "OMP_NUM_THREADS": "1",
                        "TOKENIZERS_PARALLELISM": "false",
                        "PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}  # fmt: skip
    with log.open("ab") as out:
        done = subprocess.run(
            [sys.executable, "-m", *words], env=env, cwd=ROOT, stdout=out, stderr=out, check=False
        )
    if done.returncode:
        raise UserError(f"{log}: {words[0]} {words[1]} ended with status {done.returncode}")
