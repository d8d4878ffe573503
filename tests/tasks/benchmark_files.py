"""Small benchmark records in the formats of the real files, written for these tests."""

import base64
import json
import pickle
import zlib
from importlib.util import find_spec
from pathlib import Path

import pytest

needs_reasoning_gym = pytest.mark.skipif(
    find_spec("reasoning_gym") is None,
    reason="the extra reasoning-gym is not installed: NOT TESTED",
)

LOGIC = [
    ("All swans in the park are white. Olga saw a swan there.", "What did she see?", 1),
    ("If it rains, the match is moved. The match was not moved.", "What follows?", 2),
    ("Every baker rises early. Tom sleeps until noon.", "What is true of Tom?", 0),
    ("No locked door was opened. The red door was opened.", "What of the red door?", 3),
    ("Some clerks sing. All who sing are merry.", "What follows?", 2),
]
OPTIONS = ["Nothing at all", "A white swan", "It did not rain", "It was not locked"]


def build_logiqa_record(number: int, own_id: int | None = None) -> dict:
    text, question, answer = LOGIC[number]
    return {
        "id": number if own_id is None else own_id,
        "answer": answer,
        "text": text,
        "question": question,
        "options": OPTIONS,
        "type": {"Categorical Reasoning": True},
    }


def build_reclor_record(number: int, part: str) -> dict:
    text, question, answer = LOGIC[number]
    return {
        "context": text,
        "question": question,
        "answers": OPTIONS,
        "label": answer,
        "id_string": f"{part}_{number}",
    }


def build_gsm8k_record(number: int) -> dict:
    """Build problem ``number``, with a calculator annotation and a thousands separator."""
    total = 1000 * (number + 1)
    return {
        "question": f"Ann has {number + 1} boxes with 1,000 pens each. How many pens are there?",
        "answer": (
            f"She has {number + 1}*1000=<<{number + 1}*1000={total}>>{total:,} pens.\n"
            f"#### {total:,}"
        ),
    }


def build_math_record(number: int, part: str, answer: str | None = None) -> dict:
    answer = str(number * 3) if answer is None else answer
    return {
        "problem": f"What is ${number} \\cdot 3$?",
        "level": "Level 1",
        "subject": "Counting & Probability",
        "solution": f"Three times {number} is $\\boxed{{{answer}}}$.",
        "answer": answer,
        "unique_id": f"{part}/counting/{number}.json",
    }


def pack_tests(tests: list[dict]) -> str:
    """Pack tests as LiveCodeBench does."""
    return base64.b64encode(zlib.compress(pickle.dumps(json.dumps(tests)))).decode()


def build_test(text: str, expected: str, kind: str = "stdin") -> dict:
    return {"input": text, "output": expected, "testtype": kind}


def build_livecodebench_record(number: int, day: str, **change: object) -> dict:
    """Build problem ``number``: print (odd numbers: return) the input times ``number``."""
    functional = number % 2 == 1
    kind = "functional" if functional else "stdin"
    end = "" if functional else "\n"
    tests = [build_test(f"{n}{end}", f"{n * number}{end}", kind) for n in (1, 2, 30)]
    starter = "class Solution:\n    def scale(self, n: int) -> int:\n        "
    return {
        "question_title": f"scale-by-{number}",
        "question_content": f"Multiply the given number by {number}.\n",
        "platform": "leetcode" if functional else "atcoder",
        "question_id": f"{number}" if functional else f"abc{number:03}_a",
        "contest_id": "made-up",
        "contest_date": f"{day}T00:00:00",
        "starter_code": starter if functional else "",
        "difficulty": "easy",
        "public_test_cases": json.dumps(tests[:1]),
        "private_test_cases": pack_tests(tests[1:]),
        "metadata": json.dumps({"func_name": "scale"} if functional else {}),
        **change,
    }


def write_lines(path: Path, records: list[dict]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")
