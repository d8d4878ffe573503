"""option_letter: the three rules on the same responses, and properties of all rules."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gapft_harness import load_verifier
from gapft_harness.plugins.verifiers.option_letter import OptionLetter
from gapft_harness.plugins.verifiers.statements import find_first_statement

PAGE = Path(__file__).parents[2] / "docs" / "verifiers.md"
OPTIONS = ["the old man walks", "rain fell", "Neither of them", "a cat, or a dog."]
RULES = ["whole_response", "first_explicit", "permissive"]


def read_lines(name: str) -> list[dict[str, str]]:
    text = Path(__file__).with_name(name).read_text("utf-8")
    return [json.loads(line) for line in text.splitlines()]


#: Responses with the letter that each rule reads ("" for none, several letters for several).
TABLE = read_lines("option_letters.jsonl")
FORMS = read_lines("first_explicit_forms.jsonl")


def list_passing_letters(rule: str, response: str) -> str:
    """List the letters for which a response passes; every other verdict must have a reason."""
    golds = [{"answer": letter, "options": OPTIONS} for letter in "ABCD"]
    verifier = load_verifier("option_letter", rule=rule)  # which removes thoughts
    verdicts = verifier.verify([response.replace("⏎", "\n")] * 4, golds)
    assert all(bool(verdict.reason) != verdict.passed for verdict in verdicts)
    return "".join("ABCD"[n] for n, verdict in enumerate(verdicts) if verdict.passed)


@pytest.mark.parametrize("rule", RULES)
def test_rules_read_expected_letter(rule: str) -> None:
    """A response passes only for the one letter that the rule reads."""
    letters = {row["response"]: list_passing_letters(rule, row["response"]) for row in TABLE}
    expected = {row["response"]: row[rule] for row in TABLE}
    assert letters == {
        response: letter if letter in [*"ABCD"] else "" for response, letter in expected.items()
    }


def test_documented_table_is_right() -> None:
    pattern = r"^\| (?:`` (.+?) ``|`(.+?)`) \|" + r" ([A-D–]) \|" * 3 + "$"
    rows = re.findall(pattern, PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    assert len(rows) >= 10
    for first, second, *letters in rows:
        response = first or second
        assert [list_passing_letters(rule, response) or "–" for rule in RULES] == letters, response


def test_first_explicit_reads_each_form() -> None:
    letters = {row["response"]: list_passing_letters("first_explicit", row["response"])
               for row in FORMS}  # fmt: skip
    assert letters == {row["response"]: row["read_as"] or "" for row in FORMS}


@pytest.mark.parametrize(
    "gold",
    ["", "b", "AB", "30", 1, None, {"options": OPTIONS}, {"answer": "E", "options": OPTIONS},
     {"letter": "A", "options": OPTIONS}, {"answer": "A", "options": "ABCD"},
     {"answer": "A", "options": ["x"] * 27}],
    ids=repr,
)  # fmt: skip
@pytest.mark.parametrize("rule", RULES)
def test_gold_outside_options_is_error(rule: str, gold: Any) -> None:
    verifier = OptionLetter(rule)
    (verdict,) = verifier.verify(["A"], [gold])
    assert verdict.status == "error"
    assert verifier.check_gold(gold).startswith(verdict.reason)


def test_only_permissive_rule_needs_option_texts() -> None:
    for rule, response in zip(RULES, ["(E)", "Answer: E", "E"], strict=True):
        verifier = OptionLetter(rule)
        (verdict,) = verifier.verify([response], ["E"])
        assert verdict.status == ("error" if rule == "permissive" else "pass")
        assert bool(verifier.check_gold("E")) == (rule == "permissive")


@pytest.mark.parametrize("response", ["The answer is B", "Rain fell", "I think B", "B2"])
def test_permissive_rule_does_not_read_words(response: str) -> None:
    gold = {"answer": "B", "options": OPTIONS}
    assert OptionLetter("permissive").answer(response, gold) is None


def test_letters_extend_to_number_of_options() -> None:
    gold = {"answer": "J", "options": [f"text {i}" for i in range(10)]}
    for rule, response in zip(RULES, ["J", "The answer is J", "J. text 9"], strict=True):
        verifier = OptionLetter(rule)
        assert verifier.check_gold(gold) == ""
        assert verifier.verify([response], [gold])[0].passed


#: Texts whose words deny, suppose or ask, or name letters.
DENYING = [
    *("None of the above", "None of these.", "Not enough information", "Neither of them", "No"),
    *("No, it does not follow", "It is impossible to tell", "The author never says so"),
    *("If it rained, nobody walked", "Perhaps it rained", "Neither A nor B", "It is not A but B"),
    *("It can't be known whether it rained", "Unless it rained, he walks", "rain fell"),
]
#: Forms that state an option by its text and its letter.
WITH_TEXT = [
    *("My final answer is {text} ({letter}).", "The answer is **{text}** ({letter})"),
    *("Answer: {text}, ({letter})", "Answer: {text} - {letter}"),
    *("I choose {text} (option {letter}).", "The answer is {text} (Option {letter})."),
    *('The correct answer is "{text}", option {letter}.', "So, {text} [{letter}]."),
    *("The answer is {text}, which is {letter}.", "\\boxed{{{text} ({letter})}}"),
    *("{text} ({letter})", "{text} ({letter}) is correct."),
    "He may walk.\n\n{text} ({letter})\n\nThe passage says so.",
    *("The answer is {letter} ({text}).", "Therefore, {letter} ({text}).", "({letter}) {text}"),
    "Answer: {letter}) {text}",
]
#: Forms that mention both and state nothing.
UNSTATED = [
    *("It is not {text} ({letter}).", "The answer is not {text} ({letter})."),
    "I don't think the answer is {text} ({letter}).",
    *("If the answer is {text} ({letter}), he walks.", "Is it {text} ({letter})?"),
    *("It could be {text} ({letter}).", "Some would say the answer is {text} ({letter})."),
    *("The passage says that {text} ({letter}).", "{text} ({letter}) is wrong."),
    *("{letter} ({text}) is wrong.", "So {letter} ({text}) is wrong."),
    "The answer is either {text} ({letter}) or he slept ({other}).",
    *("Either he slept ({other}) or {text} ({letter}).", "not {letter}"),
]


def read_with_options(form: str, text: str, letter: str, other: str) -> str:
    """Read a form filled with an option's text and letter, and those of a different option."""
    options = [f"claim {number}" for number in range(4)]
    options["ABCD".index(letter)], options["ABCD".index(other)] = text, "he slept"
    response = form.format(text=text.rstrip("."), letter=letter, other=other)
    return find_first_statement(response, "H", options).letters


@given(st.sampled_from(WITH_TEXT), st.sampled_from(DENYING), st.permutations("ABCD"))
def test_words_of_an_option_do_not_deny_its_letter(form: str, text: str, order: list[str]) -> None:
    letter, other, *_ = order
    assert read_with_options(form, text, letter, other) == letter
    refuted = "{other} (he slept) is wrong, and he slept ({other}) says little.\n\n"
    assert read_with_options(refuted + form, text, letter, other) == letter


@given(st.sampled_from(UNSTATED), st.sampled_from(DENYING), st.permutations("ABCD"))
def test_an_option_with_its_letter_can_be_denied(form: str, text: str, order: list[str]) -> None:
    letter, other, *_ = order
    stated = read_with_options(form, text, letter, other)
    assert {*stated} in (set(), {letter, other})
    followed = form + "\n\nThe answer is {other}."
    if "{other}" not in form:
        assert read_with_options(followed, text, letter, other) == other


@pytest.mark.parametrize(
    ("response", "letter"),
    [
        ("My final answer is None of the above (D).", "D"),
        ("None of the above (d)", "D"),
        ("My final answer is None of the above (A).", ""),
        ("None of the above, A is wrong", ""),
        ("The answer is none (D)", ""),
        ("The answer is A, and none of the above (D) is wrong.", "A"),
        ("The answer is B and none of the above (D) cannot hold.", "B"),
        ("The answer is A and none of the above (D).", "AD"),
        ("None of the above (D) is wrong, so none of these (C).", "C"),
        ("A. is not supported", "A"),
        ("The answer is **B**: he slept", "B"),
    ],
)
def test_a_text_belongs_to_its_own_letter(response: str, letter: str) -> None:
    options = ["is not supported", "he slept", "None of these", "None of the above"]
    assert find_first_statement(response, "H", options).letters == letter


words = st.sampled_from(
    [*"ABCDE", "A.", "(B)", "the", "answer", "is", "not", "wrong", "so", "and", "or", ",", "\n",
     "rain fell", "a cat", "\\boxed{", "}", "A man", "wait, "]
)  # fmt: skip
texts = st.text() | st.lists(words).map(" ".join) | st.sampled_from([r["response"] for r in TABLE])


@given(texts, st.booleans())
def test_response_passes_iff_its_answer_is_the_gold(text: str, has_options: bool) -> None:
    """At most one letter passes; a response of a letter alone passes by every rule."""
    passing = {}
    for rule in RULES if has_options else RULES[:2]:
        verifier = OptionLetter(rule)
        golds: list[Any] = [*"ABCD"]
        if has_options:
            golds = [{"answer": letter, "options": OPTIONS} for letter in "ABCD"]
        answers = {verifier.answer(text, gold=gold) for gold in golds}
        assert len(answers) == 1  # the answer does not depend on which option is right
        verdicts = verifier.verify([text] * 4, golds)
        passing[rule] = {"ABCD"[n] for n, verdict in enumerate(verdicts) if verdict.passed}
        assert passing[rule] == answers & {*"ABCD"}
    if passing["whole_response"]:
        assert all(letters == passing["whole_response"] for letters in passing.values())


# Statements of one letter as models write them, and text around them.
STATEMENTS = [
    *("{}\n", "({})", "{}.", "Answer: {}.", "The answer is {}."),
    *("The correct answer is most likely ({}).", "So the answer is clearly option {}."),
    *("I would choose {}.", "Therefore, ({}).", "It must be {}.", "\\boxed{{{}}}.", "Option {}."),
    "{} is correct.",
]
EMPHASIS = [
    *("{}", "**{}**", "*{}*", "__{}__", "_{}_", "`{}`", "<b>{}</b>", "<strong>{}</strong>"),
    *('"{}"', "“{}”", "[{}]", "【{}】", "\\textbf{{{}}}", "\\text{{{}}}", "${}$", "**({})**"),
]
REMARKS = [
    *("", " {} is wrong.", " It cannot be {}."),
    *("\n\nExplanation: {} is not supported by the passage.", " {} does not follow."),
    *(" If {} held, it would not have rained.", " Could it be {}? No."),
    *("\nNo other option fits, not even {}.", " Actually, {} is tempting but wrong."),
]
LEADS = [
    *("", "The passage speaks of rain. ", "I think {} is wrong. ", "It is not {}.\n"),
    *("Suppose {}. Then nobody walks, a contradiction. ", "Is it {}? It is not.\n\n"),
    "A) says he walks.\nB) says it rained.\nC) says neither.\nD) says both.\n\n",
]
letters = st.sampled_from("ABCD")


@given(
    st.sampled_from(LEADS),
    st.sampled_from(STATEMENTS),
    st.sampled_from(EMPHASIS),
    st.sampled_from(REMARKS),
    st.permutations("ABCD"),
)
def test_reads_statement_despite_emphasis_and_rejected_letters(
    lead: str, statement: str, emphasis: str, remark: str, order: list[str]
) -> None:
    letter, other, *_ = order
    parts = (lead.format(other), statement.format(emphasis.format(letter)), remark.format(other))
    assert find_first_statement("".join(parts), "H").letters == letter


@given(letters, letters, st.sampled_from([", or rather {}", " - no, {}.", ". Wait, it is {}."]))
def test_correction_overrides_statement(letter: str, other: str, correction: str) -> None:
    text = f"The answer is {letter}{correction.format(other)}"
    assert find_first_statement(text, "H").letters == other
