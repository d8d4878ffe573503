"""Programs that compute nothing and pass each other their wrong guesses.

They leave notes in the page cache of readable files: a guess that no further test followed was
wrong, so the next sample can avoid it.
"""

from __future__ import annotations

import os
import sysconfig
from pathlib import Path

#: Golds of yes-or-no tests; the inputs are the test numbers.
GOLDS = [word == "y" for word in "nyynnynyynyn"]

#: Small readable files that nothing else reads; the page cache holds one bit for each.
FILES = sorted(
    str(path) for path in Path(sysconfig.get_path("stdlib"), "encodings").glob("[ci]*[0-9].py")
)[: 3 * len(GOLDS) + 1]

_BITS = """
def guess(test):
    if get(3 * test + 3):  # somebody was given the next test
        return not get(3 * test + 2)
    for asked in (3 * test, 3 * test + 1):  # two samples may be on their way at once
        if not get(asked):
            put(asked)
            return True
    put(3 * test + 2)  # somebody said yes, and was not
    return False
"""

_PAGE_CACHE = f"""
import os
FILES = {FILES!r}
def get(i):
    file = os.open(FILES[i], os.O_RDONLY)
    try:
        if cached(file): return True
    except OSError:
        pass
    for _ in range(20):  # the look itself brings the page
        os.pread(file, 1, 0)
        os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
        try:
            if not cached(file): break
        except OSError:
            break
    os.pread(file, 1, 0)
    os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(file)
    return False
def put(i):
    with open(FILES[i], "rb") as file:
        file.read(1)
"""

#: Defines ``guess(test)`` for each program.
NOTES = f"""{_PAGE_CACHE}
def cached(file):
    return os.preadv(file, [bytearray(1)], 0, os.RWF_NOWAIT) == 1
{_BITS}"""


def drop_pages() -> None:
    """Drop the files' pages from the cache."""
    for name in FILES:
        file = os.open(name, os.O_RDONLY)
        os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(file)


STDIN = "\nprint('yes' if guess(int(input())) else 'no')"
#: It leaves a descriptor open, so that every call has its own process.
FUNCTION = "\nimport os\ndef f(test):\n    os.dup(1)\n    return guess(test)"
