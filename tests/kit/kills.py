"""A small run that can be ended at a chosen point, and the record of the work that it does.

A plugin watches every process of the command. It records each file that is put in place below the
run's folder, and each request to the sampler. At a planned point it ends the command instead. So
points come from the record of an uninterrupted run, and no stage or module has to be named.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from safetensors.numpy import load_file

from tests.kit.command import COMMON, gapft
from tests.kit.letters import CONTAINS_SOURCE, write_letters
from tests.kit.patience import PATIENCE_S
from tests.kit.plugins import build_plugin
from tests.kit.tiny_models import write_byte_llama

#: How a command ends, and its exit statuses. The driver does some of the work of workers itself;
#: an exception may be raised in a plugin.
ENDINGS: Mapping[str, tuple[int, ...]] = {
    "SIGKILL": (-signal.SIGKILL,),
    "disk full": (1, 2),
    "SIGINT": (130,),
    "SIGTERM": (-signal.SIGTERM,),
    "worker killed": (1, -signal.SIGKILL),
    "exception": (1, 2),
    "SIGINT twice": (130,),
}

_WATCHING = '''
import errno
import fcntl
import json
import os
import pathlib
import re
import signal
import struct
import sys
import time

FOLDER = pathlib.Path(__file__).resolve().parent


def is_driver():
    return sys.argv[1:2] == ["run"]


def read_record():
    lines = (FOLDER / "record").read_text().splitlines()
    return [json.loads(line)["what"] for line in lines]


def is_planned(what, plan):
    """Whether this is the planned occurrence, counted since the file that comes before it."""
    if plan.get("what") != what:
        return False
    done = read_record()[::-1]
    if plan["after"]:
        if plan["after"] not in done:
            return False
        done = done[: done.index(plan["after"])]
    return done.count(what) == plan["earlier"]


def reach(what, **more):
    """Record a piece of work, unless the command is to end here.

    Two workers take turns, or neither would see that the other one has just done the same. The
    lock is none of those that a test takes away.
    """
    with (FOLDER / "turns").open("ab") as turns:
        fcntl.fcntl(turns, fcntl.F_SETLKW, struct.pack("hhqqi", fcntl.F_WRLCK, 0, 0, 0, 0))
        plan = json.loads((FOLDER / "plan.json").read_text())
        is_end = is_planned(what, plan)
        if is_end:
            (FOLDER / "plan.json").write_text(json.dumps({"session": plan["session"]}))
        else:
            record(what, plan, more)
    if is_end:
        end(plan["ending"], int((FOLDER / "driver").read_text()))
        record(what, plan, more)


def record(what, plan, more):
    line = json.dumps({"session": plan["session"], "pid": os.getpid(), "what": what, **more})
    with (FOLDER / "record").open("ab", buffering=0) as file:
        file.write(line.encode() + b"\\n")


def end(ending, driver):
    if ending == "exception":
        raise RuntimeError("the planned end")
    if ending == "disk full":
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    if ending == "wait":
        (FOLDER / "waiting").touch()
        while not (FOLDER / "go").exists():
            time.sleep(0.01)
        return
    if ending == "worker killed":
        os.kill(os.getpid(), signal.SIGKILL)
    name, _, twice = ending.partition(" ")
    for _ in range(2 if twice else 1):
        os.kill(driver, getattr(signal, name))
    while not is_driver():  # a worker ends with its driver
        time.sleep(1)


def watch(event, arguments):
    if event in ("os.rename", "os.link"):
        place = pathlib.Path(os.path.abspath(os.fsdecode(arguments[1])))
        if FOLDER in place.parents:
            reach(re.sub("[0-9a-f]{64}", "HASH", place.relative_to(FOLDER).as_posix()))


class Recording:
    """The hf sampler, which records every request."""

    def __init__(self, settings, adapter):
        self._sampler = HfSampler(settings, adapter)
        self._arm = adapter.arm.name if adapter else "source"
        self.describe, self.close = self._sampler.describe, self._sampler.close

    def generate(self, requests, decoding, report):
        asked = [f"{self._arm} {r.problem_id} {i}" for r in requests for i in r.indices]
        reach(f"generate {asked[0]}", asked=asked)
        return self._sampler.generate(requests, decoding, report)


if is_driver():
    (FOLDER / "driver").write_text(str(os.getpid()))
sys.addaudithook(watch)
'''

_PLUGIN = build_plugin(
    _WATCHING + CONTAINS_SOURCE,
    samplers=['"recording", Recording, start_tokens=True'],
    verifiers=['"contains", Contains'],
)

#: Files that a command writes whenever it goes on.
_REWRITTEN = re.compile(r"run/(run\.json|recipe\.yaml)")

#: Files that are quickly made from those in the store.
_DERIVED = re.compile(
    r"run/(run\.json|recipe\.yaml|.*\.parquet|.*report|scaled/.*|.*\.partial.*)"
    r"|\.store/.*\.partial/.*"
)


@dataclass(frozen=True)
class Point:
    """A moment just before a piece of work: a file that is put in place, or a request.

    Attributes:
        what: the file's path below the folder, without hashes; or ``generate`` and the first
            response.
        earlier: how often it was done before.
        after: a piece of work since which it is counted; empty: the start of the run.
    """

    what: str
    earlier: int
    after: str = ""

    @property
    def kind(self) -> str:
        """The point without samples, problems and names of arms."""
        return re.sub(r"\w+-seed\d+|\d+-\d+|greedy| (pool|audit)\S+ \S+", "*", self.what)


@dataclass
class WatchedRun:
    """A run directory ``run`` in a folder of its own, with everything that its command needs.

    Attributes:
        folder: the folder; it also has the run's store.
        settings: further arguments of the command.
        environment: further variables.
        sessions: how many commands were started.
    """

    folder: Path
    settings: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    sessions: int = 0

    @property
    def path(self) -> Path:
        """The run directory."""
        return self.folder / "run"

    @property
    def command(self) -> list[str]:
        """The arguments of the command."""
        recipe = ["run", "recipe.yaml", "--include-path", "tasks", "--plugin", "plugin.py"]
        return [*recipe, "--run-dir", "run", *self.settings]

    def start(
        self, point: Point | None = None, ending: str = ""
    ) -> subprocess.CompletedProcess[str]:
        """Run the command, up to a point if one is given."""
        self._plan(point, ending)
        return self.start_again()

    def start_again(self) -> subprocess.CompletedProcess[str]:
        """Run the command beside another one, or without a new plan."""
        return gapft(*self.command, cwd=self.folder, env=self.environment)

    def start_alone(self) -> subprocess.Popen[bytes]:
        """Start the command in a process group of its own, and do not wait for its end."""
        self._plan(None, "")
        return self._open_process()

    def start_waiting(self, point: Point) -> subprocess.Popen[bytes]:
        """Start the command, which waits at a point for ``release``."""
        self._plan(point, "wait")
        process = self._open_process()
        deadline = time.monotonic() + PATIENCE_S
        while not (self.folder / "waiting").exists():
            assert process.poll() is None, self.read_output()
            assert time.monotonic() < deadline, "it never came to the point"
            time.sleep(0.01)
        return process

    def _open_process(self) -> subprocess.Popen[bytes]:
        with (self.folder / "output").open("wb") as output:
            return subprocess.Popen(
                [sys.executable, "-m", "gapft_harness.cli.main", *self.command],
                cwd=self.folder,
                env={**os.environ, **COMMON, **self.environment},
                stdout=output,
                stderr=output,
                start_new_session=True,
            )

    def read_output(self) -> str:
        """Read what a command in a process of its own has printed."""
        return (self.folder / "output").read_text()

    def patch_python(self, source: str) -> None:
        """Let every Python process of the next commands run some source at its start."""
        (self.folder / "sitecustomize.py").write_text(source)
        path = f"{self.folder}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"
        self.environment = {**self.environment, "PYTHONPATH": path}

    def release(self) -> None:
        """Let a waiting command go on."""
        (self.folder / "go").touch()

    def _plan(self, point: Point | None, ending: str) -> None:
        self.sessions += 1
        plan: dict[str, Any] = {"session": self.sessions, "ending": ending}
        if point is not None:
            plan |= {"what": point.what, "after": point.after, "earlier": point.earlier}
        (self.folder / "plan.json").write_text(json.dumps(plan))

    def has_ended_at_plan(self) -> bool:
        """Return whether the last command came to its point."""
        return "what" not in json.loads((self.folder / "plan.json").read_text())

    def list_processes(self) -> set[int]:
        """List the processes that worked in the last command."""
        return {line["pid"] for line in self.read_record() if line["session"] == self.sessions}

    def finish(self) -> None:
        """Run the command and require success."""
        done = self.start()
        assert done.returncode == 0, done.stdout + done.stderr

    def read_record(self) -> list[dict[str, Any]]:
        """Read the recorded work, in order."""
        lines = (self.folder / "record").read_text().splitlines()
        return [json.loads(line) for line in lines]

    def list_points(self) -> Iterator[Point]:
        """List the points of an uninterrupted run.

        A file that every command rewrites is counted since the last work that is done only once.
        """
        work = [line["what"] for line in self.read_record()]
        once = {what for what, times in Counter(work).items() if times == 1}
        for number, what in enumerate(work):
            start = 0
            if _REWRITTEN.fullmatch(what):
                start = max((n + 1 for n in range(number) if work[n] in once), default=0)
            yield Point(what, work[start:number].count(what), work[start - 1] if start else "")

    def is_done(self, point: Point) -> bool:
        """Return whether an earlier command did the work of a point."""
        done = [line["what"] for line in self.read_record()][::-1]
        if point.after and point.after not in done:
            return False
        since = done[: done.index(point.after)] if point.after else done
        return since.count(point.what) > point.earlier

    def count_work(self) -> Counter[str]:
        """Count how often each response was asked for and each file was put in place."""
        return Counter(work for line in self.read_record() for work in _list_work(line))

    def count_requests_at_the_end(self) -> Counter[str]:
        """Count the responses of the last request of each process of the commands that ended."""
        last = {
            (line["session"], line["pid"]): line
            for line in self.read_record()
            if "asked" in line and line["session"] < self.sessions
        }
        return Counter(work for line in last.values() for work in _list_work(line))


def _list_work(line: Mapping[str, Any]) -> list[str]:
    if _DERIVED.fullmatch(line["what"]):
        return []
    return line.get("asked", [line["what"]])


def prepare_watched_run(folder: Path, model: Path, *settings: str) -> WatchedRun:
    """Write task, plugin and recipe of a small run into a new folder.

    Args:
        folder: the folder.
        model: the model's folder; it is made if it does not exist.
        settings: further arguments of the command.
    """
    folder.mkdir()
    if not model.exists():
        write_byte_llama(model)
    write_letters(folder, {"pool": 24, "audit": 12})
    (folder / "plugin.py").write_text(_PLUGIN)
    (folder / "record").touch()
    (folder / "recipe.yaml").write_text(
        "name: letters\ndata: {task: letters}\n"
        f"model: {{backend: recording, args: {{pretrained: '{model}', dtype: float32,"
        " device: cpu, batch_size: 16}}\n"
        "search: {k: 4, temperature: 1.0, top_p: 1.0, chunk: 4}\n"
        "conditions: [gapft, all_verified]\nseeds: [13]\n"
        "training: {dtype: float32, repetitions: 16, dropout: 0.1, schedule: cosine}\n"
        "statistics: {replicates: 10}\n"
        "executor: {workers: 1, checkpoint_steps: 1}\n"
        "experiments: {scaling: {calibration: 8, tolerance: 0.9}, stability: {sets: 2, k: 2}}\n"
    )
    return WatchedRun(folder, settings)


def read_outcome(run: Path) -> dict[str, Any]:
    """Read what a run has found out: tables, weights, logs of training and results, by file.

    Other files have only their name: they hold times, or what these files hold.
    """
    return {
        path.relative_to(run).as_posix(): _read_content(path)
        for path in sorted(run.rglob("*"))
        if path.is_file() and path.suffix != ".lock"
    }


def _read_content(path: Path) -> Any:
    if path.suffix == ".parquet":
        return pq.read_table(path).to_pydict()
    if path.suffix == ".safetensors":
        return {name: weights.tobytes() for name, weights in load_file(path).items()}
    if path.name == "training_log.jsonl":
        return path.read_text()
    if path.name == "results.json":
        return json.loads(path.read_text())
    return None


def check_finished(run: WatchedRun, whole: WatchedRun) -> None:
    """Compare the files and the work of a run that was ended with the uninterrupted run's."""
    assert read_outcome(run.path) == read_outcome(whole.path)
    expected, work, in_flight = (
        whole.count_work(),
        run.count_work(),
        run.count_requests_at_the_end(),
    )
    assert {what for what in expected if what not in work} == set()
    again = {what for what in expected if work[what] > expected[what] + in_flight[what]}
    assert again == set(), "finished work was done again"
    assert [path for path in run.path.rglob("*") if path.match("*.partial")] == []


def read_files(folder: Path) -> dict[str, bytes]:
    """Read all files of a run or a store but locks, which name their last holder."""
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and path.suffix != ".lock"
    }


def list_changed_files(before: Mapping[str, bytes], after: Mapping[str, bytes]) -> list[str]:
    """List the files that were changed, added or removed."""
    return sorted(name for name in {*before, *after} if before.get(name) != after.get(name))
