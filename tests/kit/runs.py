"""Base runs, made once per session, with a snapshot after each stage; copies of them to change."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import stat
import subprocess
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from filelock import FileLock

from tests.kit.command import ROOT, call, gapft, succeed
from tests.kit.letters import CONTAINS_SOURCE, prepare_letters_run
from tests.kit.plugins import build_plugin
from tests.kit.tampering import read_rows

#: The stages of each snapshot, after those of the snapshots before it. The last one runs the whole
#: command; ``select`` is the stage that changes a setting.
SNAPSHOTS = {
    "searched": ("search", "states"),
    "selected": ("select",),
    "trained": ("train",),
    "audited": ("select", "audit", "experiments"),
    "reported": (),
}

#: A selector of a plugin, so that the letters run depends on a file of its user.
_DRAWN_SOURCE = '''

def drawn(pool, n, rng):
    """Draw from all verified problems."""
    return pool.draw(pool.verified, n, rng)
'''

#: An experiment of a plugin.
_EXPERIMENT = ROOT / "tests/example_plugin/gapft_answer_lengths.py"

#: The letters task's verifier, and a selector.
LETTERS_PLUGIN = build_plugin(
    CONTAINS_SOURCE + _DRAWN_SOURCE,
    verifiers=['"contains", Contains'],
    selectors=['"drawn", drawn'],
)

#: Conditions of the letters run: a plugin's selector, a shared adapter, a repeated training. The
#: first by name, whose files ``tamper`` changes, has no twin that would contradict it.
_CONDITIONS = (
    "{gapft: {}, uniform: {}, drawn: {}, shared: {selector: gapft}, "
    "repeated: {selector: gapft, replicate: 1}}"
)

_EXPERIMENTS = "scaling: {calibration: 12, tolerance: 0.9}, stability: {sets: 2, k: 2}"
_SMALL = ("executor.workers=1", "seeds=[13]", "statistics.replicates=10")
_ONLINE = "{trainer: grpo, grpo: {group_size: 3, max_tokens: 4, mask_flat: true}}"

#: The settings of each base run besides those of its recipe.
_SETTINGS = {
    "letters": (
        f"conditions={_CONDITIONS}",
        f"experiments={{{_EXPERIMENTS}, answer_lengths: {{long: 6}}}}",
        "budget.replay=2",
        "budget.n=4",
        "training.schedule=cosine",
        "training.repetitions=8",
        *_SMALL,
    ),
    "imported": (
        "conditions=[gapft]",
        f"experiments={{{_EXPERIMENTS}}}",
        "budget.replay=2",
        "budget.n=4",
        *_SMALL,
    ),
    "online": (
        f"conditions={{gapft: {{}}, online: {{selector: gapft, training: {_ONLINE}}}}}",
        "budget.n=4",
        "training.update_groups=2",
        *_SMALL,
    ),
    "demo": ("conditions=[gapft,uniform]", *_SMALL),
    "demo-code": ("data.audit_limit=40", *_SMALL),
}

#: The bases of the letters task: with a plugin's experiment, with imported responses, and with
#: online training.
_LETTERS = ("letters", "imported", "online")

#: The bases whose recipe has experiments: others do not know the stage.
_EXPERIMENTING = ("letters", "imported")

#: Settings that are changed with these snapshots, so that the run has a history.
_LATE_SETTINGS = {
    "audited": ("--set", "statistics.replicates=15"),
    "reported": ("--set", "statistics.replicates=20"),
}
#: A base whose last snapshot has files of an experiment that is no longer in the recipe.
_LATE_REMOVAL = {"letters": ("--set", f"experiments={{{_EXPERIMENTS}}}")}

BASES = tuple(_SETTINGS)


def find_differences(folder: Path, run: Path) -> list[str]:
    """Run ``gapft verify``; return the lines that it prints if it fails, else none.

    Args:
        folder: the folder of ``plugin.py``, if the run needs one.
        run: the run directory.
    """
    done = call("verify", run, *_list_plugins(folder))
    assert done.returncode in (0, 1, 2), done
    return done.stderr.splitlines() if done.returncode else []


@dataclass(frozen=True)
class BaseRun:
    """A run, and what its commands need.

    Attributes:
        path: the run directory; its store is beside it.
        folder: the folder of the base run: recipe, task, plugin and model, if they are files.
    """

    path: Path
    folder: Path

    @property
    def plugins(self) -> list[str]:
        """The plugin files, as for ``--plugin``."""
        return list(_list_plugins(self.folder)[1::2])

    def find_differences(self) -> list[str]:
        """Run ``gapft verify``; return the lines that it prints if it fails, else none."""
        return find_differences(self.folder, self.path)

    def resume(self, *arguments: object) -> subprocess.CompletedProcess[str]:
        """Run ``gapft run RUN`` again; the caller checks the exit status."""
        return gapft("run", self.path, *_list_plugins(self.folder), *arguments, cwd=self.folder)


#: What the fixture ``run_at`` is.
RunAt = Callable[..., BaseRun]


def make_once(folder: Path, make: Callable[[Path], object]) -> Path:
    """Make a folder's content if no worker of this session has made it; return the folder.

    Args:
        folder: below the folder that all workers share; a name of its own for each content.
        make: writes the content into the empty folder.
    """
    finished = folder.with_suffix(".finished")
    folder.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(folder.with_suffix(".lock")):
        if not finished.exists():
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir()
            make(folder)
            finished.touch()
    return folder


def make_base_run(root: Path, base: str) -> Path:
    """Make a base run and its snapshots below ``root`` if they are not there; return its folder.

    Processes of one session may call this at the same time.
    """
    return make_once(root / "base" / base, partial(_make_snapshots, base=base))


def copy_snapshot(folder: Path, snapshot: str, target: Path) -> BaseRun:
    """Copy a snapshot of a base run, with its store, into a folder."""
    shutil.copytree(folder / snapshot, target, copy_function=shutil.copyfile)
    _set_writable(target, True)
    return BaseRun(target / "run", folder)


def hash_files(folder: Path) -> str:
    """Hash the names and contents of all files of a base run, but not the hash itself."""
    digest = hashlib.sha256()
    for path in sorted(folder.rglob("*")):
        if path.is_file() and path != folder / "finished":
            digest.update(f"{path.relative_to(folder)}\n".encode() + path.read_bytes())
    return digest.hexdigest()


def find_changed_base_runs(root: Path) -> Iterator[str]:
    """Yield the base runs that a test has changed: permissions do not stop root."""
    for finished in sorted((root / "base").glob("*/finished")):
        if finished.read_text() != hash_files(finished.parent):
            yield finished.parent.name


def _make_snapshots(folder: Path, base: str) -> None:
    work = folder / "work"
    settings = [part for setting in _SETTINGS[base] for part in ("--set", setting)]
    recipe: Sequence[object] = (base, *settings)
    if base in _LETTERS:
        prepare_letters_run(folder, LETTERS_PLUGIN)
        shutil.copyfile(_EXPERIMENT, folder / "plugin_experiment.py")
        recipe = ("recipe.yaml", "--include-path", "tasks", *settings)
    plugins = _list_plugins(folder)
    command = [*recipe, "--run-dir", work / "run"]
    if base == "imported":
        letters = make_base_run(folder.parents[1], "letters") / "searched/run"
        logs = {
            split: [str(_write_responses(letters / f"{split}/responses.parquet", folder / split))]
            for split in ("pool", "audit")
        }
        command += ["--set", f"search.responses={json.dumps(logs)}"]
    for snapshot, stages in SNAPSHOTS.items():
        known = [stage for stage in stages if stage != "experiments" or base in _EXPERIMENTING]
        only = [part for stage in known for part in ("--only", stage)]
        late = [*_LATE_SETTINGS.get(snapshot, ())]
        if snapshot == "reported":
            late += _LATE_REMOVAL.get(base, ())
        succeed("run", *command, *only, *late, *plugins, cwd=folder)
        command = [work / "run"]
        shutil.copytree(work, folder / snapshot)
    shutil.rmtree(work)
    (folder / "finished").write_text(hash_files(folder))
    _set_writable(folder, False)


def _write_responses(table: Path, stem: Path) -> Path:
    """Write a table of responses as a log of JSON lines."""
    lines = [
        {
            "id": row["problem_id"],
            "index": "greedy" if row["index"] < 0 else row["index"],
            "text": row["text"],
            "passed": row["status"] == "pass",
            "finish_reason": row["finish_reason"],
        }
        for row in read_rows(table)
    ]
    path = stem.with_suffix(".jsonl")
    path.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    return path


def _list_plugins(folder: Path) -> tuple[str, ...]:
    files = map(str, sorted(folder.glob("plugin*.py")))
    return tuple(part for file in files for part in ("--plugin", file))


def _set_writable(folder: Path, writable: bool) -> None:
    for path in (folder, *folder.rglob("*")):
        mode = stat.S_IMODE(path.stat().st_mode)
        os.chmod(path, mode | stat.S_IWUSR if writable else mode & ~0o222)
