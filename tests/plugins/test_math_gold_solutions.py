"""Judge all gold solutions of MATH's training file as responses."""

import json

import pytest

from gapft_harness.plugins.verifiers.boxed_math import BoxedMath
from tests.real_data import find_real_file


@pytest.mark.thorough
def test_at_least_998_of_1000_gold_solutions_pass(record_property):
    text = find_real_file("MATH/train.jsonl").read_text(encoding="utf-8")
    records = [json.loads(line) for line in text.splitlines()]
    assert len(records) == 7500
    with BoxedMath(timeout_s=10, workers=2) as verifier:
        verdicts = verifier.verify(
            [record["solution"] for record in records], [record["answer"] for record in records]
        )
    rest = [(r, v) for r, v in zip(records, verdicts, strict=True) if not v.passed]
    for record, verdict in rest:
        print(f"{record['unique_id']}: {verdict.status}: {verdict.reason}")
    passed = len(records) - len(rest)
    print(f"{passed} of {len(records)} pass ({passed / len(records):.2%})")
    record_property("passed", passed)
    assert passed / len(records) >= 0.998
    # Two records have an empty gold answer, so their verdict is an error.
    empty = {r["unique_id"] for r in records if not r["answer"].strip()}
    assert {r["unique_id"] for r, v in rest if v.status == "error"} == empty
