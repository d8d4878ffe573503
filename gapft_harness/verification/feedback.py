"""What a model is told between the attempts of an episode: the public tests' outcome, bounded.

Errors and reasons say nothing of the machine: the same program gets the same ones wherever it is
run. What it printed or returned is told as it is, like the input and what was expected.
"""

from __future__ import annotations

import re
import sys
import sysconfig
from functools import lru_cache
from pathlib import Path

from gapft_harness.sandbox import Test, TestResult

#: Most characters of each part (input, expected, output or error) that a model is shown.
SHOWN = 400

#: Ends every feedback: what is wanted next.
REQUEST = "Write the whole corrected program in one fenced Python block."

NO_PROGRAM = f"Your response holds no complete fenced Python program.\n{REQUEST}"

#: From this length on, a traceback or standard error was cut, and may begin amid a line.
_CUT = 4000

#: A frame of a traceback that is not the program's own, with the lines of source below it.
_FOREIGN_FRAME = re.compile(r'^((?: *\| )?) *File "/[^\n]*\n?(?:\1 {4}[^\n]*\n?)*', re.MULTILINE)

#: Folders that a system's own Python shares with all else, as it does /usr and /tmp. A program may
#: well write their names: a path in them stays, unless it is in Python's part of them.
_SHARED = {"/usr", "/usr/bin", "/usr/local", "/usr/local/bin"}

_LABELS = {
    "stdin": ("Input", "Expected output", "Your output"),
    "function": ("Arguments", "Expected value", "Your value"),
}


def failure_feedback(
    kind: str, number: int, public: int, test: Test, result: TestResult, shown: int = SHOWN
) -> str:
    """Return what a model is shown of a program that failed a public test.

    Args:
        kind: the suite's, ``stdin`` or ``function``.
        number: which public test failed, from 1.
        public: how many public tests there are.
        test: the failed test.
        result: what became of it.
        shown: most characters of each part; the rest is cut, and the cut is said.
    """
    given, expected, got = _LABELS[kind]
    verdict = result.verdict.replace("_", " ")
    if result.verdict == "wrong_answer":
        outcome = f"{got}:\n{_start(result.output, shown)}"
    elif result.verdict in ("runtime_error", "compile_error"):
        outcome = f"Error:\n{_end(own_error(result.error) or without_paths(result.reason), shown)}"
    else:
        outcome = f"Stopped:\n{_start(without_paths(result.reason), shown)}"
    return (
        f"Your program failed public test {number} of {public}: {verdict}.\n"
        f"{given}:\n{_start(test.input, shown)}\n"
        f"{expected}:\n{_start(test.expected, shown)}\n"
        f"{outcome}\n{REQUEST}"
    )


def own_error(text: str) -> str:
    """A traceback or standard error as far as it is the program's own.

    Frames of the harness, of the interpreter and of packages are left out.
    """
    if len(text) >= _CUT and not text.startswith("Traceback"):
        text = text.partition("\n")[2] or text
    return without_paths(_FOREIGN_FRAME.sub("", text))


def without_paths(text: str) -> str:
    """Return a text in which files of this installation have their names within it.

    Of Python's own files that is so wherever it is installed. Where its prefix is ``/usr`` or
    ``/usr/local``, other paths below that stay as they are.

    Args:
        text: a reason or a traceback that a model or a report will show.

    >>> import json
    >>> without_paths(f"cannot import name 'x' from 'json' ({json.__file__})")
    "cannot import name 'x' from 'json' (json/__init__.py)"
    """
    return _installation().sub("", text)


@lru_cache(maxsize=1)
def _installation() -> re.Pattern[str]:
    """The folders that Python and packages are in; descriptors stand for some (tier landlock)."""
    found = {*sys.path, *sysconfig.get_paths().values(), sys.prefix, sys.base_prefix}
    found.add(str(Path(__file__).parents[2]))
    found |= {str(Path(folder).resolve()) for folder in found if folder}
    folders = {folder.rstrip("/") for folder in found if folder.count("/") > 1} - _SHARED
    named = "|".join(map(re.escape, sorted(folders, key=len, reverse=True)))
    return re.compile(rf"(?<![\w/.-])(?:{named}|/proc/self/fd/[0-9]+)/")


def _start(text: str, shown: int) -> str:
    text = text.strip("\n")
    return text if len(text) <= shown else f"{text[:shown]} … (cut)"


def _end(text: str, shown: int) -> str:
    """The end of a traceback says most."""
    text = text.strip("\n")
    return text if len(text) <= shown else f"(cut) … {text[-shown:]}"
