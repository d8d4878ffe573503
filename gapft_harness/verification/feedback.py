"""Build the feedback between the attempts of an episode: the outcome of a public test, shortened.

Errors and reasons contain no paths of the machine, so that the same program gets the same feedback
on every machine. Printed and returned values, inputs and expected values are shown unchanged.
"""

from __future__ import annotations

import re
import sys
import sysconfig
from functools import lru_cache
from pathlib import Path

from gapft_harness.sandbox import Test, TestResult

#: Maximum characters of each part (input, expected value, output or error) in the feedback.
MAX_CHARACTERS = 400

#: The end of every feedback: the request for the next attempt.
REQUEST = "Write the whole corrected program in one fenced Python block."

NO_PROGRAM = f"Your response holds no complete fenced Python program.\n{REQUEST}"

#: A traceback or standard error of at least this length was cut, and may begin within a line.
_CUT = 4000

#: A frame of a traceback outside the program, with the source lines below it.
_FOREIGN_FRAME = re.compile(r'^((?: *\| )?) *File "/[^\n]*\n?(?:\1 {4}[^\n]*\n?)*', re.MULTILINE)

#: Folders that a system's Python shares with other software. A program may print paths in them, so
#: such paths are kept unless they are in Python's own subfolders.
_SHARED = {"/usr", "/usr/bin", "/usr/local", "/usr/local/bin"}

_LABELS = {
    "stdin": ("Input", "Expected output", "Your output"),
    "function": ("Arguments", "Expected value", "Your value"),
}


def failure_feedback(kind: str, number: int, public: int, test: Test, result: TestResult) -> str:
    """Format the feedback on a program that failed a public test.

    Args:
        kind: the suite's kind, ``stdin`` or ``function``.
        number: the number of the failed public test, from 1.
        public: the number of public tests.
        test: the failed test.
        result: its result.
    """
    input_label, expected_label, output_label = _LABELS[kind]
    verdict = result.verdict.replace("_", " ")
    if result.verdict == "wrong_answer":
        outcome = f"{output_label}:\n{_cut_end(result.output)}"
    elif result.verdict in ("runtime_error", "compile_error"):
        error = strip_foreign_frames(result.error) or without_paths(result.reason)
        outcome = f"Error:\n{_cut_start(error)}"
    else:
        outcome = f"Stopped:\n{_cut_end(without_paths(result.reason))}"
    return (
        f"Your program failed public test {number} of {public}: {verdict}.\n"
        f"{input_label}:\n{_cut_end(test.input)}\n"
        f"{expected_label}:\n{_cut_end(test.expected)}\n"
        f"{outcome}\n{REQUEST}"
    )


def strip_foreign_frames(text: str) -> str:
    """Remove the frames of the harness, the interpreter and packages from an error text.

    Args:
        text: a traceback or standard error.
    """
    if len(text) >= _CUT and not text.startswith("Traceback"):
        text = text.partition("\n")[2] or text
    return without_paths(_FOREIGN_FRAME.sub("", text))


def without_paths(text: str) -> str:
    """Make paths of this Python installation and its packages relative to their folders.

    Python's own files are recognized wherever it is installed. If its prefix is ``/usr`` or
    ``/usr/local``, other paths below the prefix are unchanged.

    Args:
        text: a reason or a traceback, to be shown to a model or in a report.

    >>> import json
    >>> without_paths(f"cannot import name 'x' from 'json' ({json.__file__})")
    "cannot import name 'x' from 'json' (json/__init__.py)"
    """
    return _installation_pattern().sub("", text)


@lru_cache(maxsize=1)
def _installation_pattern() -> re.Pattern[str]:
    """Return a pattern of the folders of Python and packages, and their descriptors in landlock."""
    folders = {*sys.path, *sysconfig.get_paths().values(), sys.prefix, sys.base_prefix}
    folders.add(str(Path(__file__).parents[2]))
    folders |= {str(Path(folder).resolve()) for folder in folders if folder}
    removable = {folder.rstrip("/") for folder in folders if folder.count("/") > 1} - _SHARED
    alternatives = "|".join(map(re.escape, sorted(removable, key=len, reverse=True)))
    return re.compile(rf"(?<![\w/.-])(?:{alternatives}|/proc/self/fd/[0-9]+)/")


def _cut_end(text: str) -> str:
    text = text.strip("\n")
    return text if len(text) <= MAX_CHARACTERS else f"{text[:MAX_CHARACTERS]} … (cut)"


def _cut_start(text: str) -> str:
    """Cut the start of a text: the end of a traceback is the most informative part."""
    text = text.strip("\n")
    return text if len(text) <= MAX_CHARACTERS else f"(cut) … {text[-MAX_CHARACTERS:]}"
