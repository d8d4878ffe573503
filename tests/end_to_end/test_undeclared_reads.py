"""No step reads a file or an environment variable that its key does not contain.

The real command runs with a hook in every Python process that logs opened files and read
variables. A file that is not Python's and not in the run, the store or a temporary folder must be
in a key: a model's file by its name and hash, a plugin and its imports by their hashes, the task's
files by their prompts and golds.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from gapft_harness.core.files import sha256
from gapft_harness.core.numerics import decides_results
from gapft_harness.lm_eval_bridge.task_file.code_files import tasks_path
from tests.kit.letters import CONTAINS, prepare_letters_run

#: In every process: log the files opened for reading and the environment variables read.
RECORDER = """
import os, sys

_log = os.open(os.environ["READ_LOG"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
_seen = set()


def _note(kind, name):
    if (kind, name) not in _seen:
        _seen.add((kind, name))
        os.write(_log, f"{kind} {name}\\n".encode(errors="replace"))


def _hook(event, arguments):
    if event == "open" and isinstance(arguments[0], (str, bytes, os.PathLike)):
        if not set("wxa") & set(arguments[1] or ""):
            _note("file", os.path.abspath(os.fsdecode(arguments[0])))


sys.addaudithook(_hook)
_get = type(os.environ).__getitem__


def _noting(self, name):
    frame = sys._getframe(1)
    while frame.f_code.co_filename.endswith(("os.py>", "os.py", "<frozen os>", "_abc.py", "_abc>")):
        frame = frame.f_back
    if "gapft_harness" in frame.f_code.co_filename:
        _note("variable", name)
    return _get(self, name)


type(os.environ).__getitem__ = _noting
"""

#: The command's environment; copying it for a child process reads all of it.
GIVEN = ("PATH", "HOME", "TMPDIR", "PYTHONPATH", "READ_LOG", "OMP_NUM_THREADS", "HF_HUB_OFFLINE")

#: Variables that the package reads and that change no result: paths, threads, communication
#: between processes, display. Others that it reads must be in keys.
HARMLESS = {
    "GAPFT_STORE", "GAPFT_NO_AUTOLOAD", "GAPFT_CODE_EVAL", "GAPFT_DATA_DIR", "COLUMNS",
    "HF_DATASETS_OFFLINE", "TRANSFORMERS_OFFLINE", "HF_HOME", "HF_DATASETS_CACHE",
    "XDG_CACHE_HOME", "OMP_WAIT_POLICY",
    "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "TOKENIZERS_PARALLELISM", "CUDA_VISIBLE_DEVICES",
    "GAPFT_VISIBLE_DEVICES", "LC_CTYPE", "HF_HUB_DISABLE_PROGRESS_BARS",
    "HF_DATASETS_DISABLE_PROGRESS_BARS",
}  # fmt: skip

#: Variables that libraries set on import, which a copy of the environment contains.
SET_BY_LIBRARIES = (
    "TORCH",
    "KMP_",
    "HF_XET",
    "TRANSFORMERS_",
    "TQDM",
    "MPL",
    "PYTORCH_NVML",
    "PYARROW_",
)


def read_log(log: Path, kind: str) -> Iterator[str]:
    for line in log.read_text("utf-8", "replace").splitlines():
        line_kind, _, name = line.partition(" ")
        if line_kind == kind:
            yield name


def list_texts(value: Any) -> Iterator[str]:
    """Yield every key and text of a JSON value."""
    if isinstance(value, dict):
        yield from value
        value = list(value.values())
    if isinstance(value, list):
        for inner in value:
            yield from list_texts(inner)
    elif isinstance(value, str):
        yield value


def find_environment(key: dict[str, Any]) -> Any:
    """Return the numeric environment in the key of a step that uses a model; None for others."""
    place = {
        "generate_chunks": key["settings"].get("sampler"),
        "search_split": key["machine"].get("sampler"),
        "decode": key["machine"].get("sampler"),
        "train": key["machine"],
    }.get(key["step"])
    return None if place is None else place["environment"]


def test_every_read_is_declared(tmp_path: Path) -> None:
    (tmp_path / "helpers_here.py").write_text("def holds(gold, text):\n    return gold in text\n")
    source = CONTAINS.replace("if g in r and", "if helpers_here.holds(g, r) and")
    command = prepare_letters_run(tmp_path, f"import helpers_here\n{source}")
    settings = (
        "seeds=[13]", "executor.workers=1", "search.chunk=64", "data.pool_limit=40",
        "data.audit_limit=16",
    )  # fmt: skip
    (tmp_path / "shim").mkdir()
    (tmp_path / "shim/sitecustomize.py").write_text(RECORDER)
    log, path = tmp_path / "reads.log", os.pathsep.join(map(str, (tmp_path / "shim", tmp_path)))
    done = subprocess.run(
        [
            *(sys.executable, "-m", "gapft_harness.cli.main", *command, "run"),
            *(word for setting in settings for word in ("--set", setting)),
        ],
        cwd=tmp_path, capture_output=True, text=True, check=False, timeout=600,
        env={
            **{name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ},
            "OMP_NUM_THREADS": "1", "PYTHONPATH": path, "READ_LOG": str(log),
            "HF_HUB_OFFLINE": "1", "TMPDIR": str(tmp_path.parent), "ATEN_CPU_CAPABILITY": "default",
        },
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    files = [*tmp_path.glob(".store/*/*/made_from.json")]
    files += tmp_path.glob(".store/*/*/*/made_from.json")
    keys = [json.loads(file.read_text())["key"] for file in files]
    for key in keys:
        key["step"] = key["function"].rpartition(":")[2]
    made = {key["step"] for key in keys}
    assert made >= {"generate_chunks", "judge_chunks", "train", "search_split"}

    def undeclared(name: str) -> bool:
        file = Path(name)
        if not file.is_file() or not file.is_relative_to(tmp_path) or file.suffix == ".pyc":
            return False
        inside = file.relative_to(tmp_path).parts[0]
        if inside in ("run", ".store", "shim", "reads.log", "recipe.yaml"):
            return False
        if inside == "model":
            steps = {"generate_chunks", "train"}
            return any(sha256(file) not in list_texts(key) for key in keys if key["step"] in steps)
        if inside == "tasks":  # keys contain their content as prompts and golds
            return file.name not in ("letters.yaml", "pool.jsonl", "audit.jsonl")
        return inside not in ("plugin.py", "helpers_here.py")

    read = set(read_log(log, "file"))
    assert {str(tmp_path / name) for name in ("model/model.safetensors", "plugin.py")} <= read
    assert [name for name in sorted(read) if undeclared(name)] == []
    elsewhere = [
        name
        for name in sorted(read)
        if Path(name).is_file()
        and not Path(name).is_relative_to(tmp_path)
        and not belongs_to_machine(Path(name))
    ]
    assert elsewhere == []
    judged = [k["settings"]["verifier"]["code"] for k in keys if k["step"] == "judge_chunks"]
    assert judged
    assert sha256(tmp_path / "plugin.py") not in judged, "its helper counts too"
    environments = [find_environment(key) for key in keys]
    given = {"ATEN_CPU_CAPABILITY": "default"}
    assert [found for found in environments if found not in (None, given)] == []
    assert environments.count(given) >= 4
    variables = {
        name
        for name in read_log(log, "variable")
        if name not in {*GIVEN, *HARMLESS}
        and not name.startswith(SET_BY_LIBRARIES)
        and not decides_results(name)
    }
    assert "GAPFT_STORE" in read_log(log, "variable")
    assert variables == set()


def belongs_to_machine(file: Path) -> bool:
    """Report whether a file belongs to Python, a package, the system or this package.

    Bundled tasks are included: lm-eval reads the head of every task to learn the names.
    """
    import gapft_harness

    places = [*sysconfig.get_paths().values(), sys.prefix, sys.base_prefix]
    places += ["/proc", "/sys", "/dev", "/etc", "/usr", "/lib", "/tmp", "/var"]
    places += [str(Path(gapft_harness.__file__).parent), str(tasks_path())]
    places += [str(Path.home() / ".cache")]
    places += [os.environ.get("HF_HOME", ""), *(p for p in sys.path if p.endswith("-packages"))]
    return any(place and file.is_relative_to(place) for place in places)
