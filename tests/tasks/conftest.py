"""A data folder with small files of the benchmarks."""

import json
from pathlib import Path

import pytest

from gapft_harness.core.errors import UserError
from tests.tasks.benchmark_files import (
    LOGIC,
    build_gsm8k_record,
    build_livecodebench_record,
    build_logiqa_record,
    build_math_record,
    build_reclor_record,
    write_lines,
)


@pytest.fixture
def data(tmp_path, monkeypatch) -> Path:
    """Write a data folder with all benchmarks and set GAPFT_DATA_DIR."""
    root = tmp_path / "data"
    # The training file has problem 3 of the test file (with extra spaces) and a repeated record.
    spaced = {**build_logiqa_record(3, own_id=90), "text": f" {LOGIC[3][0]}\n"}
    write_lines(
        root / "logiqa2" / "train.txt",
        [build_logiqa_record(0), build_logiqa_record(1), build_logiqa_record(0), spaced],
    )
    # The test file uses one id for two problems.
    write_lines(
        root / "logiqa2" / "test.txt",
        [build_logiqa_record(2), build_logiqa_record(3), build_logiqa_record(4, own_id=2)],
    )
    # The validation file has a training problem, a test problem (with other ids) and a new one.
    new = {**build_logiqa_record(0, own_id=7), "text": "Some birds swim."}
    write_lines(
        root / "logiqa2" / "dev.txt",
        [build_logiqa_record(1, own_id=5), build_logiqa_record(4, own_id=6), new],
    )
    (root / "reclor").mkdir()
    for part, numbers in (("train", (0, 1, 2)), ("val", (3, 4))):
        records = [build_reclor_record(number, part) for number in numbers]
        (root / "reclor" / f"{part}.json").write_text(json.dumps(records), encoding="utf-8")
    write_lines(root / "gsm8k" / "train.jsonl", [build_gsm8k_record(number) for number in range(3)])
    write_lines(root / "gsm8k" / "test.jsonl", [build_gsm8k_record(number) for number in (3, 4)])
    train = [build_math_record(n, "train") for n in range(650)] + [
        build_math_record(990, "train", answer="")
    ]
    write_lines(root / "MATH" / "train.jsonl", train)
    test = [build_math_record(n, "test") for n in range(600, 1300)] + [
        build_math_record(991, "test", "")
    ]
    write_lines(root / "MATH" / "test.jsonl", test)
    # Contest dates before, on and after the audit's first day, not in order.
    write_lines(
        root / "livecodebench" / "test.jsonl",
        [build_livecodebench_record(4, "2024-10-01"), build_livecodebench_record(3, "2024-09-30")],
    )
    write_lines(
        root / "livecodebench" / "test2.jsonl",
        [
            build_livecodebench_record(2, "2023-05-07"),
            build_livecodebench_record(5, "2025-03-01"),
            # An earlier repeat of the audit's problem 5; ERRATA lists the other two.
            build_livecodebench_record(5, "2023-06-01", question_id="2555"),
            build_livecodebench_record(6, "2023-09-02", question_id="abc326_d"),
            build_livecodebench_record(7, "2025-01-01", question_title="Most Frequent IDs"),
        ],
    )
    monkeypatch.setenv("GAPFT_DATA_DIR", str(root))
    return root


@pytest.fixture
def read_error():
    """Return a function that calls another, expects a UserError, and returns its message."""

    def run(function, *arguments) -> str:
        with pytest.raises(UserError) as caught:
            function(*arguments)
        message = str(caught.value)
        assert "\n" not in message
        return message

    return run
