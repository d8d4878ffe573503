"""Laws of every bundled verifier: order, thoughts, answers, and gold answers of any shape."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gapft_harness.core.errors import UserError
from gapft_harness.core.records import STATUSES, Response
from gapft_harness.hooks.judge import Judge
from gapft_harness.hooks.manager import load_plugins
from tests.plugins.verifier_rows import CHOICE, ROWS, SQUARE, VerifierRow, create_verifier

Case = tuple[VerifierRow, Judge]

#: A thought followed by the answer, as models and servers write them.
FORMS = {
    "closed": "<think>Perhaps {thought}</think>{answer}",
    "on lines": "<think>\n{thought}\n</think>\n\n{answer}",
    "begun in the prompt": "Perhaps {thought}\n</think>\n\n{answer}",
    "two blocks": "<think>{thought}</think><think>{thought}</think>{answer}",
    "opened twice": "<think>Is a <think> enough? {thought}</think>{answer}",
    "closed twice": "<think>{thought}</think>{thought}</think>{answer}",
    "another name": "<thinking>{thought}</thinking>{answer}",
    "in capitals": "<THINK>{thought}</THINK>{answer}",
    "of Seed-OSS": "<seed:think>{thought}</seed:think>{answer}",
    "of EXAONE": "<thought>{thought}</thought>{answer}",
    "of Mistral": "[THINK]{thought}[/THINK]{answer}",
    "of gpt-oss": "<|channel|>analysis<|message|>{thought}<|end|><|start|>assistant"
    "<|channel|>final<|message|>{answer}",
    "one in another": "<think><thought>{thought}</thought>{thought}</think>{answer}",
    "a tag in quotes": "<think>{thought}. Do I write '</think>'? {thought}</think>{answer}",
    "after the answer": "{answer}\n<think>Or {thought}",
}
#: Unclosed thoughts without an answer.
CUT_FORMS = {
    "cut off": "<think>Perhaps {thought}",
    "cut off later": "<think>{thought}</think>\n<think>{thought}",
    "cut off in another": "<think>{thought} <thought>{thought}</thought>{thought}",
    "cut off, of gpt-oss": "<|channel|>analysis<|message|>{thought}",
}


@pytest.fixture(scope="module", params=ROWS)
def case(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Case]:
    """A row and its verifier."""
    row = ROWS[request.param]
    verifier = create_verifier(row, tmp_path_factory.mktemp("task"))
    yield row, verifier
    verifier.close()


def test_every_bundled_verifier_has_a_row() -> None:
    names = {entry.name for entry in load_plugins().all() if entry.kind == "verifier"}
    assert {row.name for row in ROWS.values()} == names


def test_judges_only_text_after_thought(case: Case) -> None:
    row, verifier = case
    texts = {
        (form, thought == row.wrong): text.format(thought=thought, answer=answer)
        for form, text in {**FORMS, **CUT_FORMS}.items()
        for thought, answer in ((row.wrong, row.right), (row.right, row.wrong))
    }
    verdicts = verifier.verify([*texts.values()], [row.gold] * len(texts))
    passed = {key for key, verdict in zip(texts, verdicts, strict=True) if verdict.passed}
    assert passed == {(form, True) for form in FORMS}


def test_verdicts_do_not_depend_on_order_or_repetition(case: Case) -> None:
    row, verifier = case
    responses = [row.wrong, row.right, "", row.right, f"I see.\n{row.wrong}"]
    golds = [row.gold] * len(responses)
    verdicts = verifier.verify(responses, golds)
    assert [verdict.passed for verdict in verdicts] == [False, True, False, True, False]
    assert all(bool(verdict.reason) != verdict.passed for verdict in verdicts)
    assert verifier.verify(responses[::-1], golds) == verdicts[::-1]
    assert verifier.verify([], []) == []


def test_answer_is_read_in_the_pass_that_judges(case: Case) -> None:
    """A response passes if and only if it has the answer of a response that passes."""
    row, verifier = case
    assert verifier.reads_answers == (row.name not in ("program_tests", "task_metric"))
    if not verifier.reads_answers:
        return
    texts = [row.right, row.wrong, "", f"<think>{row.wrong}</think>{row.right}"]
    golds = [row.gold] * len(texts)
    responses = [Response("p", n, text, (), "stop", 0) for n, text in enumerate(texts)]
    pairs = verifier.judge_responses(responses, golds)
    answers = verifier.read_answers(texts, golds)
    assert pairs == list(zip(verifier.verify(texts, golds), answers, strict=True))
    right, wrong, empty, thought = answers
    assert empty is None
    assert right == thought != wrong


# Gold answers of any shape


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


DEEP, DEEPER = ("[" * depth + "]" * depth for depth in (3000, 20_000))
#: Inputs and expected values of a test; most are invalid for a function.
calls = st.sampled_from(
    ["", "1", "one", "[1", "1\n2", "NaN", '"\\ud800"', "\ud800", "9" * 5000, DEEP, DEEPER,
     f'{{"a": {DEEP}}}']
) | st.text(max_size=4)  # fmt: skip
odd = st.sampled_from(sorted(ODD))
leaves = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=4)
anything: st.SearchStrategy[Any] = odd | st.recursive(
    leaves | odd,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner),
    max_leaves=4,
)
tests = st.fixed_dictionaries({"input": calls, "expected": calls})


def change_gold(gold: Any) -> st.SearchStrategy[Any]:
    """Return golds like a valid one, in which fields have another value or are missing."""
    if not isinstance(gold, dict):
        return anything
    fields = {key: st.just(value) | anything for key, value in gold.items()}
    if "tests" in gold:
        fields["kind"] = st.sampled_from(["stdin", "function"]) | anything
        fields["function"] = st.sampled_from(["f", None]) | anything
        fields["tests"] = st.lists(tests, max_size=2) | anything
        fields |= {"public": st.integers(0, 2) | anything, "hidden": st.none() | anything}
    return st.fixed_dictionaries({}, optional=fields | {"more": anything})


function_golds = st.fixed_dictionaries(
    {
        "kind": st.just("function"),
        "function": st.just("f"),
        "tests": st.lists(tests, min_size=1, max_size=2),
    }
)
golds = st.one_of(
    anything,
    function_golds,
    *(change_gold(ROWS[name].gold) for name in ("program_tests", "task_metric", "reasoning_gym")),
    change_gold(CHOICE),
)
responses = st.text(max_size=4) | st.sampled_from(
    ["", "A", SQUARE, r"\boxed{1}", r"\boxed{" + "{" * 3000, "\ud800", "<think>", "Answer: \x00"]
)


@settings(max_examples=60)
@given(drawn=golds, response=responses)
def test_any_gold_is_rejected_or_judged(case: Case, drawn: Any, response: str) -> None:
    _, verifier = case
    gold = replace_odd_values(drawn)
    try:
        verifier.check_golds([(gold, "pool.jsonl, line 7")])
    except UserError as error:
        refused: UserError | None = error
    else:
        refused = None
    if refused is not None:
        assert type(refused) is UserError  # not a failure of the verifier itself
        assert str(refused).startswith("pool.jsonl, line 7: ")
        assert "\n" not in str(refused)
        return
    (verdict,) = verifier.verify([response], [gold])
    assert verdict.status in STATUSES
    assert not verdict.reason.startswith("the verifier raised")


@settings(max_examples=40)
@given(texts=st.lists(st.text() | responses, max_size=4))
def test_any_text_gets_a_verdict(case: Case, texts: list[str]) -> None:
    row, verifier = case
    verdicts = verifier.verify(texts, [row.gold] * len(texts))
    assert len(verdicts) == len(texts)
    assert {verdict.status for verdict in verdicts} <= {*STATUSES}
