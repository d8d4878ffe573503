"""Job functions that the tests of executors run in real worker processes."""

import json
import os
import signal
import subprocess
import sys
import time
import warnings
from pathlib import Path

from gapft_harness.core.errors import GapftError, PluginError, UserError


def nap(progress, value, seconds=0.0):
    time.sleep(seconds)
    return {"value": value, "pid": os.getpid()}


def meet(progress, folder, me, other):
    """Return only when the other job runs at the same time."""
    (Path(folder) / me).touch()
    deadline = time.monotonic() + 60
    while not (Path(folder) / other).exists():
        if time.monotonic() > deadline:
            raise TimeoutError(f"{other} never came")
        time.sleep(0.01)
    return {"met": other}


def fail(progress, kind, text):
    kinds = (GapftError, UserError, PluginError, ValueError, SystemExit, KeyboardInterrupt)
    raise {class_.__name__: class_ for class_ in kinds}[kind](text)


def hang(progress, folder):
    """Write the process id and never return."""
    path = Path(folder) / f"pid-{os.getpid()}"
    path.touch()
    progress(0, 1)
    while True:
        time.sleep(60)


def fail_after(progress, folder, text):
    """Fail after a hanging job has started."""
    while not list(Path(folder).glob("pid-*")):
        time.sleep(0.01)
    raise UserError(text)


def die(progress, how, words=""):
    print(words)
    if how == "exit":
        os._exit(7)
    os.kill(os.getpid(), getattr(signal, how))
    return {}


def shout(progress, lines):
    for i in range(lines):
        print(json.dumps(["result", {"fake": i}]), "\x00\xff" * 20)
        print("err" * 100, file=sys.stderr)
    os.write(1, b"\xff\xfe raw bytes without an end")
    os.write(2, b"\x00" * 5000)
    subprocess.run(["sh", "-c", "echo from a child; echo again >&2"], check=True)
    warnings.warn("a library's remark", stacklevel=1)
    return {"stdin": sys.stdin.read()}


def count(progress, total):
    for i in range(total + 1):
        progress(i, total, 3 * i, f"note {i}" if i in NOTED else "")
    return {}


#: Steps at which ``count`` reports a note.
NOTED = (3, 4, 500)


def read_settings(progress):
    return {
        "threads": os.environ["OMP_NUM_THREADS"],
        "mkl": os.environ["MKL_NUM_THREADS"],
        "blas": os.environ["OPENBLAS_NUM_THREADS"],
        "waiting": os.environ["OMP_WAIT_POLICY"],
        "tokenizers": os.environ["TOKENIZERS_PARALLELISM"],
        "cwd": os.getcwd(),
        "path": sys.path,
    }


def read_environment(progress, names):
    return {name: os.environ.get(name) for name in names}


def echo(progress, text):
    return {"text": text}


def return_invalid(progress, kind):
    return {"list": [1], "unprintable": {"a": object()}}[kind]


def survive(progress, folder):
    """Wait to be killed, or for the file ``go``, in the first run; return in the second."""
    earlier = sorted(Path(folder).glob("pid-*"))
    (Path(folder) / f"pid-{os.getpid()}").touch()
    while not earlier and not (Path(folder) / "go").exists():
        time.sleep(0.05)
    return {"before": [path.name for path in earlier]}


def overlap(progress, folder, me):
    """Count the jobs that run at the same time; wait two seconds for another one to start."""
    own_file = Path(folder) / f"running-{me}"
    own_file.touch()
    others, until = 0, time.monotonic() + 2
    while not others and time.monotonic() < until:
        time.sleep(0.02)
        others = len(list(Path(folder).glob("running-*"))) - 1
    time.sleep(0.1)  # so that the other sees this one too
    own_file.unlink()
    return {"others": others}
