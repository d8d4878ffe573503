"""A small run of the real command, to be killed and compared: its task, its calls, its result.

The sampler is ``hf``, wrapped by a plugin that writes every call to a log outside the run, so that
what was generated can be told from what the run directory says was.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from gapft_harness.run_directory import layout
from tests.letters_task import CONTAINS, write_letters
from tests.tiny_models import byte_llama

#: The rule and the selector take their time, so that a kill can fall into their stages.
PLUGIN = (
    CONTAINS
    + '''
import json
import os
import time

from gapft_harness.plugins.samplers.lm_eval_models import hf


class Logged:
    """The hf sampler, with a line in a log before each call."""

    def __init__(self, settings, adapter):
        self._sampler = hf(settings, adapter)
        self._arm = adapter.arm.name if adapter else None
        self.describe, self.close = self._sampler.describe, self._sampler.close

    def generate(self, requests, decoding, report):
        asked = [[r.problem_id, *r.indices] for r in requests]
        line = json.dumps([self._arm, decoding.do_sample, asked]) + "\\n"
        with open(os.environ["CALLS"], "ab", buffering=0) as file:
            file.write(line.encode())
        return self._sampler.generate(requests, decoding, report)


def slow_first(passing):
    """The first that passes, slowly."""
    time.sleep(0.03)
    return min(passing, key=lambda response: response.index)


def slow_gapft(pool, n, rng):
    """Recovered problems; slowly enough for a kill where one is to fall into this stage."""
    time.sleep(float(os.environ.get("SELECT_S", "0.2")))
    return pool.draw(pool.recovered, n, rng)


@hookimpl
def register_samplers(register):
    register("logged", Logged)


@hookimpl
def register_response_rules(register):
    register("slow_first", slow_first, stops_early=True)


@hookimpl
def register_selectors(register):
    register("slow_gapft", slow_gapft)
'''
)

POOL, AUDIT, CHUNK, K = 48, 24, 4, 4

Call = tuple[Any, ...]


@dataclass
class Child:
    """One running command: its process, and where its stage lines go."""

    process: subprocess.Popen[bytes]
    output: Path

    def stage(self) -> str:
        """The stage it said last that it began; empty before the first."""
        begun = re.findall(r"^(\w+) at \d+ s", self.output.read_text(), flags=re.MULTILINE)
        return begun[-1] if begun else ""

    def kill(self) -> bool:
        """See ``killed``."""
        return killed(self.process)


#: A moment of a run: a stage, and what must be there in it.
Marker = tuple[str, Callable[[Path], bool]]


def wait_for_marker(marker: Marker, child: Child, run: Path) -> None:
    """Returns once a command is in a stage and its condition holds; fails if it ends before."""
    stage, holds = marker
    deadline = time.monotonic() + 300
    while child.stage() != stage or not holds(run):
        assert child.process.poll() is None, f"ended before {stage}: {child.output.read_text()}"
        assert time.monotonic() < deadline, f"still in {child.stage()}, waiting for {stage}"
        time.sleep(0.002)


def workers_of(process: subprocess.Popen[bytes]) -> list[psutil.Process]:
    """The processes below a command; none if it has ended."""
    try:
        return psutil.Process(process.pid).children(recursive=True)
    except psutil.NoSuchProcess:
        return []


def killed(process: subprocess.Popen[bytes], workers: list[psutil.Process] | None = None) -> bool:
    """SIGKILL to the group that a command leads, and waits until its workers are gone too.

    The command is stopped first: finding its workers takes long on a busy machine.

    Args:
        process: the command, which was started in a session of its own.
        workers: its workers, if they are known already.

    Returns:
        False if the command had ended by itself.
    """
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGSTOP)
    workers = workers_of(process) if workers is None else workers
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    status = process.wait()
    assert psutil.wait_procs(workers, timeout=60)[1] == [], "workers end with their driver"
    return status == -signal.SIGKILL


@dataclass
class Letters:
    """The files of the task, and every command given on them."""

    folder: Path
    seconds: float = 0.0
    whole_calls: list[Call] = field(default_factory=list)

    @classmethod
    def prepare(cls, folder: Path) -> Letters:
        """Writes task, data, plugin, model and recipe, and makes the uninterrupted run."""
        byte_llama(folder / "model")
        write_letters(folder, {"pool": POOL, "audit": AUDIT}, keep="slow_first")
        (folder / "plugin.py").write_text(PLUGIN)
        (folder / "recipe.yaml").write_text(
            "name: letters\ndata: {task: letters}\n"
            "model: {backend: logged, args: "
            f"{{pretrained: '{folder / 'model'}', dtype: float32, device: cpu, batch_size: 16}}}}\n"
            f"search: {{k: {K}, temperature: 1.0, top_p: 1.0, chunk: {CHUNK}}}\n"
            "conditions: [slow_gapft, all_verified]\nseeds: [13]\n"
            "training: {dtype: float32, repetitions: 2}\nexecutor: {workers: 1}\n"
        )
        run = cls(folder)
        start = time.monotonic()
        run.finish(folder / "whole")
        run.seconds = time.monotonic() - start
        run.whole_calls = run.calls("whole")
        return run

    def command(self, run: Path, *more: str) -> list[str]:
        """The command line of this run in a directory."""
        return [
            sys.executable, "-m", "gapft_harness.cli.main", "run", "recipe.yaml", "--include-path",
            "tasks", "--plugin", "plugin.py", "--run-dir", str(run), *more,
        ]  # fmt: skip

    def environment(self, run: Path, store: Path | None = None) -> dict[str, str]:
        """One thread; a log of calls, and unless it is given a store, for the run's name."""
        calls = str(self.folder / f"{run.name}.log")
        place = str(store or store_path(run))
        return {**os.environ, "OMP_NUM_THREADS": "1", "CALLS": calls, "GAPFT_STORE": place}

    def start(self, run: Path, *more: str, store: Path | None = None) -> Child:
        """Starts the command in a process group of its own."""
        output = self.folder / f"{run.name}.err"
        with output.open("w") as file:
            process = subprocess.Popen(
                self.command(run, *more),
                cwd=self.folder,
                env={**self.environment(run, store), "SELECT_S": "1"},
                stdout=subprocess.DEVNULL,
                stderr=file,
                start_new_session=True,
            )
        return Child(process, output)

    def try_(
        self,
        run: Path,
        *more: str,
        store: Path | None = None,
        before: Callable[[], None] | None = None,
    ) -> subprocess.CompletedProcess[str]:
        """Runs the command to its end, whatever that is."""
        return subprocess.run(
            self.command(run, *more),
            cwd=self.folder,
            env=self.environment(run, store),
            capture_output=True,
            text=True,
            timeout=900,
            check=False,
            preexec_fn=before,
        )

    def finish(self, run: Path, *more: str, store: Path | None = None) -> None:
        """Runs the command and insists that it succeeds."""
        done = self.try_(run, *more, store=store)
        assert done.returncode == 0, done.stdout + done.stderr

    def calls(self, name: str) -> list[Call]:
        """Every call of the sampler for a run directory's name, in order."""
        log = self.folder / f"{name}.log"
        lines = log.read_text().splitlines() if log.exists() else []
        return [
            (arm, do_sample, tuple(map(tuple, requests)))
            for arm, do_sample, requests in map(json.loads, lines)
        ]


def count_decodes(calls: Iterable[Call]) -> Counter[tuple[str | None, str, int]]:
    """How often each response was asked for: by arm, problem and index."""
    return Counter(
        (arm, name, i) for arm, _, requests in calls for name, *indices in requests for i in indices
    )


def store_path(run: Path) -> Path:
    """The folder of a run's own store, so that it reuses no other run's responses."""
    return run.with_name(f"{run.name}.store")


def result(run: Path) -> dict[str, bytes]:
    """All that a run ends with, by name: every file, but for how it came to be.

    That is measured times, whose responses were reused, and the lock.
    """
    files = {
        path.relative_to(run).as_posix(): path.read_bytes()
        for path in run.rglob("*")
        if path.is_file() and path.name not in ("run.lock", layout.HISTORY)
    }
    manifest = json.loads(files["manifest.json"])
    del manifest["stages"], manifest["reused"]
    manifest.pop("history", None)  # its lines have times
    for facts in manifest["training"].values():
        facts.pop("seconds", None)
    files["manifest.json"] = json.dumps(manifest).encode()
    stages = rb"search|states|select|train|audit|experiments"
    time_row = rb"(?:\| |<th scope=\"row\">)(?:" + stages + rb")(?: \||</th>).*"
    # its tokens are in results.json too
    cost = rb"(?s)(?:## |<h2[^>]*>)What it cost.*?(?=\n## |<h2|<footer|\Z)"
    for page in ("report/report.md", "report/index.html"):
        untimed, cut = re.subn(cost, b"", files[page])
        assert cut == 1
        files[page] = re.sub(time_row, b"", untimed)
    return files


def stored(store: Path, **facts: Any) -> list[Path]:
    """Files of responses in a store, of the groups whose keys have these values.

    Args:
        store: its folder.
        facts: values by name: ``split`` and ``purpose`` of the samples' random streams, ``arm`` of
            the sampler's adapter: True of any, False of none.
    """
    files = []
    for group in sorted(store.glob("generate/*/made_from.json")):
        key = json.loads(group.read_text())["key"]
        values = {**key.get("streams", {}), "arm": key["sampler"]["adapter"] is not None}
        if facts.items() <= values.items():
            files += sorted(group.parent.glob("[!.]*.jsonl"))
    return files


def read_bytes(path: Path) -> bytes:
    """A file's bytes, none if it is not there: files come and go while a run is watched."""
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return b""
