"""A small run of the real command, to be killed and compared.

The sampler is ``hf``, wrapped by a plugin that logs every call outside the run, so that generated
responses can be compared with those recorded in the run directory.
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
from tests.kit.command import gapft
from tests.kit.letters import CONTAINS, write_letters
from tests.kit.patience import PATIENCE_S
from tests.kit.tiny_models import write_byte_llama

#: The rule and the selector are slow, so that a kill can hit their stages.
PLUGIN = (
    CONTAINS
    + '''
import json
import os
import time


class Logged:
    """The hf sampler, with a line in a log before each call."""

    def __init__(self, settings, adapter):
        from gapft_harness.api import HfSampler

        self._sampler = HfSampler(settings, adapter)
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
    register("slow_first", slow_first)


@hookimpl
def register_selectors(register):
    register("slow_gapft", slow_gapft)
'''
)

POOL, AUDIT, CHUNK, K = 48, 24, 4, 4

Call = tuple[Any, ...]


@dataclass
class Child:
    """A running command: its process and the file of its stage lines."""

    process: subprocess.Popen[bytes]
    output: Path

    def stage(self) -> str:
        """Return the last stage that it reported; empty before the first."""
        begun = re.findall(r"^(\w+) at \d+ s", self.output.read_text(), flags=re.MULTILINE)
        return begun[-1] if begun else ""

    def kill(self) -> bool:
        """Kill the command; see ``killed``."""
        return kill_command(self.process)


#: A moment of a run: a stage and a condition.
Marker = tuple[str, Callable[[Path], bool]]


def wait_for_marker(marker: Marker, child: Child, run: Path) -> None:
    """Wait until a command is in the stage and the condition holds; fail if it ends before."""
    stage, holds = marker
    deadline = time.monotonic() + PATIENCE_S
    while child.stage() != stage or not holds(run):
        assert child.process.poll() is None, f"ended before {stage}: {child.output.read_text()}"
        assert time.monotonic() < deadline, f"still in {child.stage()}, waiting for {stage}"
        time.sleep(0.002)


def find_workers(process: subprocess.Popen[bytes]) -> list[psutil.Process]:
    """Return a command's descendant processes; none if it has ended."""
    try:
        return psutil.Process(process.pid).children(recursive=True)
    except psutil.NoSuchProcess:
        return []


def kill_command(
    process: subprocess.Popen[bytes], workers: list[psutil.Process] | None = None
) -> bool:
    """Send SIGKILL to a command's process group and wait until its workers are gone.

    The command is stopped first: finding its workers takes long on a busy machine.

    Args:
        process: the command, started in its own session.
        workers: its workers, if already known.

    Returns:
        False if the command had already ended.
    """
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGSTOP)
    workers = find_workers(process) if workers is None else workers
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    status = process.wait()
    assert psutil.wait_procs(workers, timeout=PATIENCE_S)[1] == [], "workers end with their driver"
    return status == -signal.SIGKILL


@dataclass
class Letters:
    """The task's files, and the commands that use them."""

    folder: Path
    seconds: float = 0.0
    whole_calls: list[Call] = field(default_factory=list)

    @classmethod
    def prepare(cls, folder: Path) -> Letters:
        """Write task, data, plugin, model and recipe, and make the uninterrupted run."""
        write_byte_llama(folder / "model")
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
        run.finish(folder / "whole", forked=False)
        run.seconds = time.monotonic() - start
        run.whole_calls = run.calls("whole")
        return run

    def command(self, run: Path, *more: str) -> list[str]:
        """Return the command line for a run directory."""
        return [
            sys.executable, "-m", "gapft_harness.cli.main", "run", "recipe.yaml", "--include-path",
            "tasks", "--plugin", "plugin.py", "--run-dir", str(run), *more,
        ]  # fmt: skip

    def environment(self, run: Path, store: Path | None = None) -> dict[str, str]:
        """Return the environment: one thread, a log of calls and a store named after the run."""
        calls = str(self.folder / f"{run.name}.log")
        place = str(store or store_path(run))
        return {**os.environ, "OMP_NUM_THREADS": "1", "CALLS": calls, "GAPFT_STORE": place}

    def start(self, run: Path, *more: str, store: Path | None = None) -> Child:
        """Start the command in its own process group."""
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
        forked: bool = True,
    ) -> subprocess.CompletedProcess[str]:
        """Run the command; return its result, whatever its status.

        Args:
            run: the run directory.
            more: further arguments.
            store: the store; default: the run's own.
            before: called in the new process before the command.
            forked: fork the command from a process that has imported the libraries.
        """
        if forked and before is None:
            words, environment = self.command(run, *more)[3:], self.environment(run, store)
            return gapft(*words, cwd=self.folder, env=environment)
        return subprocess.run(
            self.command(run, *more),
            cwd=self.folder,
            env=self.environment(run, store),
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=False,
            preexec_fn=before,
        )

    def finish(self, run: Path, *more: str, store: Path | None = None, forked: bool = True) -> None:
        """Run the command and require success."""
        done = self.try_(run, *more, store=store, forked=forked)
        assert done.returncode == 0, done.stdout + done.stderr

    def calls(self, name: str) -> list[Call]:
        """Return the sampler's calls for a run directory's name, in order."""
        log = self.folder / f"{name}.log"
        lines = log.read_text().splitlines() if log.exists() else []
        return [
            (arm, do_sample, tuple(map(tuple, requests)))
            for arm, do_sample, requests in map(json.loads, lines)
        ]


def count_decodes(calls: Iterable[Call]) -> Counter[tuple[str | None, str, int]]:
    """Count the requests for each response, by arm, problem and index."""
    return Counter(
        (arm, name, i) for arm, _, requests in calls for name, *indices in requests for i in indices
    )


def store_path(run: Path) -> Path:
    """Return the folder of a run's own store, so that it reuses no other run's responses."""
    return run.with_name(f"{run.name}.store")


def read_result(run: Path) -> dict[str, bytes]:
    """Read all files of a finished run by name, without its history.

    The history is measured times, sources of reused responses, and the lock.
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
    for page in ("report/report.md", "report/index.html"):
        files[page] = re.sub(time_row, b"", files[page])
    return files


def find_stored_files(store: Path, **facts: Any) -> list[Path]:
    """Find a store's response files in groups whose keys have these values.

    Args:
        store: its folder.
        facts: values by name: ``split`` and ``purpose`` of the samples' random streams; ``arm``:
            True with an adapter, False without one.
    """
    files = []
    for group in sorted(store.glob("generate/*/made_from.json")):
        key = json.loads(group.read_text())["key"]
        values = {**key.get("streams", {}), "arm": key["sampler"]["adapter"] is not None}
        if facts.items() <= values.items():
            files += sorted(group.parent.glob("[!.]*.jsonl"))
    return files


def read_bytes(path: Path) -> bytes:
    """Read a file, or nothing if it is missing: files come and go while a run is watched."""
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return b""
