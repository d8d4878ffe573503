"""Every hostile program gets an allowed verdict and changes nothing outside the sandbox."""

from __future__ import annotations

import json

import pytest

from gapft_harness.sandbox import Program, Test
from tests.sandbox.hostile_programs import HOSTILE, Hostile

SECRET_EXPECTED = "expected-answer-4711"


@pytest.fixture(scope="module")
def hostile_history(sandbox, world):
    """The state before hostile programs ran, to detect changes."""
    sandbox.judge([(Program("print(1)"), [Test("", "1")])])
    return world.state()


@pytest.mark.parametrize("hostile", HOSTILE, ids=lambda h: h.name)
def test_sandbox_contains_hostile_program(sandbox, world, hostile_history, hostile: Hostile):
    if hostile.function:
        program = Program(hostile.source, "function", hostile.function)
        tests = [Test("0", "[4711]")]
    else:
        program = Program(hostile.source)
        tests = [Test(json.dumps(world.given) + "\n", hostile.expected or SECRET_EXPECTED)]
    (result,) = sandbox.judge([(program, tests)])
    assert result.verdict in hostile.verdicts, result
    assert "REACHED" not in result.tests[0].output, result.tests[0].output
    assert SECRET_EXPECTED not in result.tests[0].output
    assert world.state() == hostile_history
    (after,) = sandbox.judge([(Program("print(int(input()) + 1)"), [Test("1", "2")])])
    assert after.verdict == "accepted", after


def test_files_of_earlier_test_are_gone(sandbox):
    """An earlier answer is not in the descriptors, not even in space behind their end."""
    source = """
import ctypes, fcntl, mmap, os, threading
libc = ctypes.CDLL(None)
files = (0, 1, 2, 3)
if os.read(0, 1) == b"1":
    for file in files:
        libc.fallocate(file, 1, ctypes.c_long(0), ctypes.c_long(1 << 16))  # KEEP_SIZE
        os.pwrite(file, b"secret" * 2000, 0)
        fcntl.fcntl(file, fcntl.F_SETFL, os.O_APPEND | os.O_NONBLOCK)
    shared = mmap.mmap(1, 12000)
    def write():
        while True: shared[:6] = b"secret"
    threading.Thread(target=write, daemon=True).start()
else:
    sizes = [os.fstat(file).st_size for file in files]
    blocks = [os.fstat(file).st_blocks for file in files[1:]]
    flags = [fcntl.fcntl(file, fcntl.F_GETFL) & (os.O_APPEND | os.O_NONBLOCK) for file in files]
    for file in files[1:]: os.ftruncate(file, 6)
    print(sizes, blocks, flags, [os.pread(file, 6, 0).strip(b"\\0") for file in files])
"""
    items = [(Program(source), [Test("1", ""), Test("2", "")])]
    leave, look = sandbox.judge(items, run_all=True)[0].tests
    assert "secret" in leave.output
    sizes, blocks, flags, contents = [1, 0, 0, 0], [0] * 3, [0] * 4, [b"2", b"", b"", b""]
    assert look.output == f"{sizes} {blocks} {flags} {contents}\n"


def test_memory_of_earlier_program_is_gone(sandbox):
    """A fork's whole heap contains nothing from the previous program."""
    marker = "zebra" + "-crossing-" + "4711"
    search = """
import ctypes, os
libc = ctypes.CDLL(None)
libc.sbrk.restype = ctypes.c_void_p
position = libc.sbrk(0)
first, second = b"zebra-cross", b"ing-4711"
while True:  # until the heap's beginning: a segmentation fault
    position -= 1 << 14
    data = (ctypes.c_char * (1 << 14)).from_address(position).raw
    at = data.find(first)
    os.write(1, b"FOUND\\n" if at >= 0 and data[at + 11:at + 19] == second else b"clean\\n")
    del data
"""
    program = Program(f"x = {marker!r} * 1000\nprint(input())")
    results = sandbox.judge([(program, [Test(marker * 100, "")])] * 3)
    assert marker in results[0].tests[0].output
    (after,) = sandbox.judge([(Program(search), [Test("", "")])])
    seen = after.tests[0].output.split()
    assert len(seen) > 30, "the heap was not read"
    assert set(seen) == {"clean"}
