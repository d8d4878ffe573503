"""Programs cannot pass data to each other or forge error messages."""

from __future__ import annotations

import _ctypes
import colorsys
import fcntl
import os
import shutil
import sys
import tempfile
import textwrap
import threading
from pathlib import Path

import pytest

from gapft_harness.sandbox import Limits, Program, Sandbox, Test
from gapft_harness.sandbox.records import TIERS
from tests.sandbox.conftest import LIMITS

SHOW_FRAMES = """
import sys
def show(value, depth=0):
    if isinstance(value, dict) and depth < 3:
        return " ".join(f"{show(k, depth + 1)}={show(v, depth + 1)}" for k, v in value.items())
    return repr(value)[:2000]
frames, frame = [], sys._getframe()
for thread in sys._current_frames().values():
    while thread:
        frames.append(thread)
        thread = thread.f_back
for frame in frames:
    if frame.f_code.co_filename != "program.py":
        print(frame.f_code.co_name, sorted(frame.f_locals))
        for name, value in frame.f_locals.items():
            if not name.startswith("__"):
                print("   ", name, show(value))
"""


@pytest.fixture
def packages(monkeypatch):
    """An import folder that any user can reach, unlike pytest's own."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name, "site-packages")
        folder.mkdir()
        folder.parent.chmod(0o755)
        folder.chmod(0o755)
        monkeypatch.setattr(sys, "path", [*sys.path, str(folder)])
        yield folder


def test_frames_hide_how_the_last_program_ended(sandbox):
    """The frames below a program are the same, however the previous program ended."""
    before = {
        "one that passes": ("print(1)", "1"),
        "one that leaves": ("import sys; sys.exit(77)", ""),
        "one that fails": ("raise ValueError('4711')", ""),
    }
    seen = []
    for source, expected in before.values():
        items = [(Program(source), [Test("", expected)]), (Program(SHOW_FRAMES), [Test("", "")])]
        seen.append(sandbox.judge(items)[1].tests[0].output)
    assert seen[0] == seen[1] == seen[2]
    for word in ("exit", "cpu_s", "outcome", "4711", "stopped"):
        assert word not in seen[0], seen[0]
    assert "<module>" in seen[0]


def test_host_devices_keep_times_and_modes(sandbox):
    source = """
import os
for name in ("/dev/null", "/dev/zero", "/dev/random", "/dev/urandom"):
    for change in (
        lambda: os.utime(name), lambda: os.utime(name, (1, 1)), lambda: os.chmod(name, 0o600),
        lambda: os.utime(open(name).fileno()), lambda: os.utime(open(name, "wb").fileno()),
    ):
        try: change()
        except OSError: continue
        print("changed", name)
    open(name, "rb").read(1)
print(open("/dev/null", "w").write("x"), open("/dev/zero", "rb").read(2))
"""
    devices = [Path(f"/dev/{name}") for name in ("null", "zero", "random", "urandom")]
    before = [device.stat() for device in devices]
    (result,) = sandbox.judge([(Program(source), [Test("", "1 b'\\x00\\x00'")])])
    assert result.verdict == "accepted", result
    for device, status in zip(devices, before, strict=True):
        assert device.stat().st_mtime_ns == status.st_mtime_ns
        assert device.stat().st_mode == status.st_mode


@pytest.mark.parametrize("tier", TIERS)
def test_programs_cannot_lock_system_files(tier, packages):
    """A program that locks a package's file delays no other program."""
    locked = packages / "planted" / "__init__.py"
    locked.parent.mkdir()
    locked.touch()
    source = """
import fcntl, planted, time
file = open(planted.__file__)
fcntl.flock(file, fcntl.LOCK_EX)
fcntl.lockf(file, fcntl.LOCK_SH)
print("locked", flush=True)
time.sleep(0.5)
"""
    free: list[bool] = []
    judged = threading.Event()

    def look():
        with open(locked) as file:
            while not judged.wait(0.02):
                try:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    free.append(False)
                else:
                    free.append(True)
                    fcntl.flock(file, fcntl.LOCK_UN)

    looking = threading.Thread(target=look)
    with Sandbox(tier=tier, workers=1, preload=("planted",), limits=LIMITS) as sandbox:
        looking.start()
        try:
            (result,) = sandbox.judge([(Program(source), [Test("", "locked")])])
        finally:
            judged.set()
            looking.join()
    assert result.verdict == "accepted", result
    assert free
    assert all(free)


def test_reading_keeps_access_times_in_namespaces():
    """A file whose access time a read on the host would update keeps the old time."""
    path = colorsys.__file__
    if not os.access(path, os.W_OK):
        pytest.skip("times of the standard library's files can be set by their owner only")
    status = os.stat(path)
    os.utime(path, ns=(status.st_mtime_ns - 10**9, status.st_mtime_ns))
    source = "import colorsys\nprint(len(open(colorsys.__file__).read()) > 0)"
    try:
        with Sandbox(tier="namespaces", workers=1, limits=LIMITS) as sandbox:
            (result,) = sandbox.judge([(Program(source), [Test("", "True")])])
        assert result.verdict == "accepted", result
        assert os.stat(path).st_atime_ns == status.st_mtime_ns - 10**9
    finally:
        os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


@pytest.mark.parametrize("tier", TIERS)
def test_package_library_does_not_expose_its_folder(tier, packages):
    """A package that loads a library beside it can read its own files, not its neighbours'."""
    folder = packages
    (folder / "planted").mkdir()
    library = folder / f"_planted{Path(_ctypes.__file__).name}"
    shutil.copy(_ctypes.__file__, library)
    (folder / "planted" / "__init__.py").write_text(
        f"import ctypes\nlibrary = ctypes.CDLL({str(library)!r})\nx = 4711\n"
    )
    (folder / "planted" / "inner.py").write_text("y = 4712\n")
    (folder / "secret.py").write_text("secret = 1\n")
    source = f"""
import planted
from planted import inner
print(planted.x, inner.y)
for name in ("secret.py", {library.name!r}):
    try: print(len(open({str(folder)!r} + "/" + name, "rb").read()))
    except OSError: print("refused")
"""
    limits = Limits(memory_bytes=256 << 20)
    with Sandbox(tier=tier, workers=1, preload=("planted",), limits=limits) as sandbox:
        (result,) = sandbox.judge([(Program(source), [Test("", "4711 4712\nrefused\nrefused")])])
    assert result.verdict == "accepted", result


@pytest.mark.parametrize("kind", ["stdin", "function"])
def test_compile_error_cannot_be_forged(sandbox, kind):
    """The reason may be shown for hidden tests, so it must not contain the program's input."""
    words = 'b\'["compile_error", "hidden input"]\\n\''
    forge = f"""
        import os
        def f(x=None):
            for descriptor in range(3, 64):
                try:
                    os.write(descriptor, {words})
                except OSError:
                    pass
            os._exit(1)
        """
    forge = textwrap.dedent(forge) + ("" if kind == "function" else "f()\n")
    program = Program(forge, kind, "f" if kind == "function" else None)
    (result,) = sandbox.judge([(program, [Test("4711", "1")] * 2)])
    assert result.verdict == "runtime_error", result
    assert "hidden" not in result.tests[0].reason
