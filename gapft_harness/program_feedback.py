"""What a model is told between the attempts of an episode: the public tests' outcome, bounded."""

from __future__ import annotations

from gapft_harness.sandbox import Test, TestResult

#: Most characters of each part (input, expected, output or error) that a model is shown.
SHOWN = 400

#: Ends every feedback: what is wanted next.
REQUEST = "Write the whole corrected program in one fenced Python block."

NO_PROGRAM = f"Your response holds no complete fenced Python program.\n{REQUEST}"

_LABELS = {
    "stdin": ("Input", "Expected output", "Your output"),
    "function": ("Arguments", "Expected value", "Your value"),
}


def failure_feedback(
    kind: str, number: int, public: int, test: Test, result: TestResult, shown: int = SHOWN
) -> str:
    """The feedback on a program that failed a public test.

    Args:
        kind: ``stdin`` or ``function``.
        number: which public test failed, from 1.
        public: how many public tests there are.
        test: that test.
        result: what became of it.
        shown: most characters of each part; the rest is cut, and the cut is said.
    """
    given, expected, got = _LABELS[kind]
    verdict = result.verdict.replace("_", " ")
    if result.verdict == "wrong_answer":
        outcome = f"{got}:\n{_start(result.output, shown)}"
    elif result.verdict in ("runtime_error", "compile_error"):
        outcome = f"Error:\n{_end(result.error or result.reason, shown)}"
    else:
        outcome = f"Stopped:\n{_start(result.reason, shown)}"
    return (
        f"Your program failed public test {number} of {public}: {verdict}.\n"
        f"{given}:\n{_start(test.input, shown)}\n"
        f"{expected}:\n{_start(test.expected, shown)}\n"
        f"{outcome}\n{REQUEST}"
    )


def _start(text: str, shown: int) -> str:
    text = text.strip("\n")
    return text if len(text) <= shown else f"{text[:shown]} … (cut)"


def _end(text: str, shown: int) -> str:
    """The end of a traceback says most."""
    text = text.strip("\n")
    return text if len(text) <= shown else f"(cut) … {text[-shown:]}"
