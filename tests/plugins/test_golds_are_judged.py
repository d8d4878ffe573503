"""Bundled verifiers can judge any response against every gold answer that they accept."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from gapft_harness import load_verifier
from gapft_harness.core.errors import UserError
from gapft_harness.core.records import STATUSES
from gapft_harness.hooks.protocols import Verifier
from gapft_harness.sandbox import Test, probe_tiers
from gapft_harness.verification.judging import check_golds, verify_unique
from gapft_harness.verification.programs import check_calls, read_suite
from tests.tasks.benchmark_files import build_test, needs_reasoning_gym, pack_tests

DEEP = "[" * 3000 + "]" * 3000
DEEPER = "[" * 20_000 + "]" * 20_000
LONG = "9" * 5000


def nest_lists(depth: int) -> Any:
    value: Any = "B"
    for _ in range(depth):
        value = [value]
    return value


#: Values that hypothesis cannot print are drawn as words; ``replace_odd_values`` inserts them.
ODD: dict[str, Any] = {
    "<deep>": nest_lists(3000),
    "<deeper>": {"a": nest_lists(3000)},
    "<integer>": 10**5000,
    "<surrogate>": "\ud800",
    "<braces>": "{" * 3000,
    "<bytes>": b"B",
    "<complex>": 1j,
}


def replace_odd_values(drawn: Any) -> Any:
    if isinstance(drawn, dict):
        return {key: replace_odd_values(value) for key, value in drawn.items()}
    if isinstance(drawn, list):
        return [replace_odd_values(value) for value in drawn]
    return ODD.get(drawn, drawn) if isinstance(drawn, str) else drawn


#: Inputs and expected values of a test; most are invalid for a function.
calls = st.sampled_from(
    [
        "",
        "1",
        "one",
        "[1",
        "1\n2",
        "NaN",
        '"\\ud800"',
        "\ud800",
        LONG,
        DEEP,
        DEEPER,
        f'{{"a": {DEEP}}}',
    ]
) | st.text(max_size=4)
leaves = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=4)
odd = st.sampled_from(sorted(ODD))
anything: st.SearchStrategy[Any] = odd | st.recursive(
    leaves | odd,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner),
    max_leaves=4,
)
tests = st.lists(
    st.fixed_dictionaries({"input": calls, "output": calls})
    | st.fixed_dictionaries({"input": calls, "expected": calls})
    | anything,
    max_size=2,
)
suites = st.fixed_dictionaries(
    {"kind": st.sampled_from(["stdin", "function"]) | anything, "tests": tests | anything},
    optional={
        "function": st.sampled_from(["f", None]) | anything,
        "public": st.integers(0, 2) | anything,
        "hidden": st.none() | anything,
    },
)
#: Suites that are valid except for the contents of their tests.
functions = st.fixed_dictionaries(
    {
        "kind": st.just("function"),
        "function": st.just("f"),
        "tests": st.lists(
            st.fixed_dictionaries({"input": calls, "output": calls}), min_size=1, max_size=2
        ),
    }
)
choices = st.fixed_dictionaries(
    {"answer": st.sampled_from("AB") | anything},
    optional={
        "options": st.lists(st.text(max_size=3), max_size=3) | anything,
        "more": anything,
    },
)
#: Reasoning Gym problems that its scorer may not support.
generated = st.fixed_dictionaries(
    {
        "generator": st.sampled_from(["lcm", "prime_factorization", "none"]) | anything,
        "settings": st.just({}) | anything,
        "question": st.text(max_size=4) | anything,
        "answer": st.sampled_from(["1", "2 × 3"]) | anything,
        "metadata": st.just({}) | anything,
    }
)
documents = st.dictionaries(st.sampled_from(["question", "answer"]), anything)
PROGRAM = "```python\ndef f(*given):\n    return 1\nprint(1)\n```"
responses = st.sampled_from(["", "A", PROGRAM, r"\boxed{1}", r"\boxed{" + "{" * 3000, "\ud800"])

TASK = {
    "task": "pears",
    "dataset_path": "json",
    "output_type": "generate_until",
    "test_split": "train",
    "doc_to_text": "{{question}}",
    "doc_to_target": "{{answer}}",
    "metric_list": [{"metric": "exact_match"}],
}


@pytest.fixture(
    scope="module",
    params=[
        *("option_letter", "boxed_math", "math", "task_metric", "programs"),
        pytest.param("reasoning_gym", marks=needs_reasoning_gym),
    ],
)
def verifier(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Verifier]:
    folder = tmp_path_factory.mktemp("pears")
    if request.param == "task_metric":
        (folder / "train.jsonl").write_text(json.dumps({"question": "1?", "answer": "1"}))
        task = {**TASK, "dataset_kwargs": {"data_files": {"train": str(folder / "train.jsonl")}}}
        (folder / "pears.yaml").write_text(yaml.safe_dump(task))
    if request.param == "programs" and not any(tier.holds for tier in probe_tiers()):
        pytest.skip("no sandbox tier holds on this machine: NOT TESTED")
    name, params = {
        "option_letter": ("option_letter", {"rule": "first_explicit"}),
        "boxed_math": ("boxed_math", {"workers": 1, "timeout_s": 1}),
        "math": ("math", {"workers": 1, "timeout_s": 1}),
        "task_metric": ("task_metric", {"task": "pears", "include_path": str(folder)}),
        "reasoning_gym": ("reasoning_gym", {"workers": 1}),
        "programs": ("program_tests", {"workers": 1, "limits": {"memory_bytes": 256 << 20}}),
    }[request.param]
    instance = load_verifier(name, **params)
    yield instance
    getattr(instance, "close", lambda: None)()


@settings(max_examples=60)
@given(
    functions | suites | choices | documents | generated | anything, st.text(max_size=4) | responses
)
def test_gold_is_rejected_or_judged(verifier: Verifier, drawn: Any, response: str) -> None:
    gold = replace_odd_values(drawn)
    try:
        check_golds(verifier, [(gold, "pool.jsonl, line 7")])
    except UserError as error:
        refused: UserError | None = error
    else:
        refused = None
    if refused is not None:
        assert type(refused) is UserError  # not a failure of the verifier itself
        assert str(refused).startswith("pool.jsonl, line 7: ")
        assert "\n" not in str(refused)
        return
    (verdict,) = verify_unique(verifier, [response], [gold])
    assert verdict.status in STATUSES
    assert not verdict.reason.startswith("the verifier raised")


@pytest.mark.parametrize(
    ("test", "expected"),
    [
        ({"input": "one", "output": "1"}, "input must be one JSON value per line; found 'one'"),
        ({"input": "1", "output": "one"}, "expected value must be JSON; found 'one'"),
        ({"input": "[" * 20_000 + "]" * 20_000, "output": "1"}, "test 2 of 2"),
        ({"input": "1", "output": "[" * 10_001 + "]" * 10_001}, "nested more than 10000 times"),
    ],
)
@pytest.mark.parametrize("hidden", [False, True])
def test_rejects_call_no_program_can_pass(
    test: dict[str, str], expected: str, hidden: bool
) -> None:
    good = {"input": "1", "expected": "1"}
    gold: dict[str, Any] = {"kind": "function", "function": "f", "tests": [good, test]}
    if hidden:
        coded_test = build_test(test["input"], test["output"], "functional")
        gold |= {"tests": [good], "hidden": pack_tests([coded_test])}
    with pytest.raises(UserError) as caught:
        check_calls(read_suite(gold))
    assert expected in str(caught.value)


def test_rejects_both_expected_and_output() -> None:
    suites = [
        read_suite({"kind": "stdin", "tests": [{"input": "1", word: "2"}]}).tests
        for word in ("expected", "output")
    ]
    assert suites == [(Test("1", "2"),)] * 2
    both = {"input": "1", "expected": "1", "output": "1"}
    with pytest.raises(UserError, match="expected an object with the texts input and expected"):
        read_suite({"kind": "stdin", "tests": [both]})
