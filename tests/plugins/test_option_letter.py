"""option_letter: the three rules on the same responses, and properties of all rules."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gapft_harness import load_verifier
from gapft_harness.core.errors import UserError
from gapft_harness.core.records import Verdict
from gapft_harness.plugins.verifiers import statements
from gapft_harness.plugins.verifiers.option_letter import OptionLetter
from gapft_harness.plugins.verifiers.statements import find_first_statement

PAGE = Path(__file__).parents[2] / "docs" / "verifiers.md"
OPTIONS = ["the old man walks", "rain fell", "Neither of them", "a cat, or a dog."]
RULES = ["whole_response", "first_explicit", "permissive"]

# Response -> the letter that each rule reads ("" for none, several letters for several).
TABLE = [
    # response, whole_response, first_explicit, permissive
    ("B", "B", "B", "B"),
    ("B.", "B", "B", "B"),
    ("B)", "B", "B", "B"),
    ("(B)", "B", "B", "B"),
    (" \n(B)\n", "B", "B", "B"),
    ("A", "A", "A", "A"),
    ("E", "E", "E", "E"),
    ("(B", "", "B", ""),
    ("b", "", "B", ""),
    ("Ｂ", "", "B", ""),
    ("**B**", "", "B", ""),
    ("[B]", "", "B", ""),
    ('"B"', "", "B", ""),
    ("B. Because it follows", "", "B", ""),
    ("B because it follows", "", "B", ""),
    ("B\n\nExplanation: A is wrong", "", "B", ""),
    ("B. rain fell", "", "B", "B"),
    ("B rain fell", "", "B", "B"),
    ("(B) Rain fell.", "", "B", "B"),
    ("B: rain\nfell", "", "B", "B"),
    ("B. rain fell. That is why A is wrong.", "", "B", "B"),
    ("B. rain fellow", "", "B", ""),
    ("B. rain", "", "B", ""),
    ("B. the old man walks", "", "B", ""),
    ("D. A cat, or a dog", "", "D", "D"),
    ("A. the old man walks", "", "A", "A"),
    ("A man walks", "", "", ""),
    ("A man walks. The answer is B.", "", "B", ""),
    ("A **man** walks", "", "", ""),
    ("A (tall) man walks", "", "", ""),
    ("(A man walks)", "", "", ""),
    ("A* search is fast", "", "", ""),
    ("A-level students", "", "", ""),
    ("A's claim is right", "", "", ""),
    ("Answer: A man walks", "", "", ""),
    ("The answer is A man", "", "", ""),
    ("Answer: B", "", "B", ""),
    ("Answer:\n\nC. text", "", "C", ""),
    ("**Answer: B**", "", "B", ""),
    ("# Answer\n**D**", "", "D", ""),
    ("Correct answer - C", "", "C", ""),
    ("The answer is (C)", "", "C", ""),
    ("The answer is A", "", "A", ""),
    ("The answer is A because it rained", "", "A", ""),
    ("The answer is\nB", "", "B", ""),
    ("The best option here is C", "", "C", ""),
    ("The correct answer is option D.", "", "D", ""),
    ("The answer is choice A.", "", "A", ""),
    ("Therefore, the answer is **C**.", "", "C", ""),
    ("Therefore, \\boxed{C}", "", "C", ""),
    ("The answer is $\\boxed{\\text{A}}$", "", "A", ""),
    ("Option D", "", "D", ""),
    ("Option (B)", "", "B", ""),
    ("Option B weakens the argument", "", "B", ""),
    ("C is correct", "", "C", ""),
    ("A is correct", "", "A", ""),
    ("A is the best answer", "", "A", ""),
    ("A is wrong", "", "", ""),
    ("I think A is wrong, so B", "", "B", ""),
    ("A, B and C are wrong. D.", "", "D", ""),
    ("Neither A nor B. The answer: C", "", "C", ""),
    ("The answer is not A but B.", "", "B", ""),
    ("The answer can't be A. It must be B.", "", "B", ""),
    ("If A is correct, then B fails. The answer is C.", "", "C", ""),
    ("Comparing (A) with the text, it fails. (C) is correct.", "", "C", ""),
    ("C does not follow; the answer is D", "", "D", ""),
    ("Options: A, B, C, D. Answer: D", "", "D", ""),
    ("I would choose B", "", "B", ""),
    ("I, personally, say C", "", "C", ""),
    ("Let's go with C.", "", "C", ""),
    ("I believe it's B.", "", "B", ""),
    ("I think the answer is B, not C", "", "B", ""),
    ("Let me think.\nB", "", "B", ""),
    ("Vitamin A is needed. So D.", "", "D", ""),
    ("Plan B was good.", "", "", ""),
    ("Mr. B walks", "", "", ""),
    ("C++ is a language", "", "", ""),
    ("D.C. officials met. B", "", "B", ""),
    ("both A and B", "", "AB", ""),
    ("A or B", "", "AB", ""),
    ("A/B", "", "AB", ""),
    ("The answer is either B or C", "", "BC", ""),
    ("The answers are A and C", "", "AC", ""),
    ("None of the above", "", "", ""),
    ("", "", "", ""),
]
CASES = [(rule, row[0], row[1 + column]) for row in TABLE for column, rule in enumerate(RULES)]


@pytest.mark.parametrize(("rule", "response", "letters"), CASES)
def test_rules_read_expected_letter(rule, response, letters):
    """A response passes only for the letter that the rule reads."""
    verifier = OptionLetter(rule=rule)
    golds = [{"answer": letter, "options": OPTIONS} for letter in "ABCD"]
    verdicts = verifier.verify([response] * 4, golds)
    assert [v.status for v in verdicts] == [
        "pass" if letter == letters else "fail" for letter in "ABCD"
    ]
    assert all(v.reason == "" if v.passed else v.reason for v in verdicts)


def list_passing_letters(rule: str, response: str) -> str:
    """List the letters for which a response passes; – means none."""
    golds = [{"answer": a, "options": OPTIONS} for a in "ABCD"]
    verdicts = load_verifier("option_letter", rule=rule).verify(
        [response.replace("⏎", "\n")] * 4, golds
    )
    return "".join(g["answer"] for g, v in zip(golds, verdicts, strict=True) if v.passed) or "–"


def read_documented_rows(columns: int) -> list[list[str]]:
    """Read the rows of documented tables with this number of letter columns."""
    text = PAGE.read_text(encoding="utf-8")
    pattern = r"^\| (?:`` (.+?) ``|`(.+?)`) \|" + r" ([A-D–]) \|" * columns + "$"
    return [[a or b, *letters] for a, b, *letters in re.findall(pattern, text, re.M)]


def test_documented_table_is_right():
    assert len(read_documented_rows(3)) >= 10
    for response, *letters in read_documented_rows(3):
        assert [list_passing_letters(rule, response) for rule in RULES] == letters, response


FILE = Path(__file__).parent / "first_explicit_forms.jsonl"
FORMS = [json.loads(line) for line in FILE.read_text("utf-8").splitlines()]


@pytest.mark.parametrize("form", FORMS, ids=lambda form: f"{form['group']}: {form['response']}")
def test_first_explicit_reads_each_form(form):
    assert list_passing_letters("first_explicit", form["response"]) == (form["read_as"] or "–")


@pytest.mark.parametrize(
    ("rule", "response", "reason"),
    [
        ("whole_response", "C.", "said C"),
        ("whole_response", "E", "said E, but the options are A to D"),
        ("whole_response", "C. rain", "not exactly an option letter"),
        ("first_explicit", "Answer: C", "said C"),
        ("first_explicit", "Answer: E", "said E, but the options are A to D"),
        ("first_explicit", "A and B", "said A and B together"),
        ("first_explicit", "a man", "no option stated"),
        ("first_explicit", "A) one B) two", "spoke of A and B, stated none"),
        ("first_explicit", "The answer is B. Scratch that.", "took back B"),
        ("permissive", "B. rain fell", "said B"),
        ("permissive", "C", "said C"),
        ("permissive", "E. none", "said E, but the options are A to D"),
        ("permissive", "C. rain fell", "C is not followed by its option's text"),
        ("permissive", "rain fell", "opens with no option letter"),
    ],
)
def test_reports_reason_for_failure(rule, response, reason):
    gold = {"answer": "D", "options": OPTIONS}
    assert OptionLetter(rule=rule).verify([response], [gold]) == [Verdict("fail", reason)]


@pytest.mark.parametrize(
    ("gold", "reason"),
    [
        ("", "the gold answer '' is not an option letter"),
        ("b", "the gold answer 'b' is not an option letter"),
        ("AB", "the gold answer 'AB' is not an option letter"),
        (1, "the gold answer 1 is not an option letter"),
        (None, "the gold answer None is not an option letter"),
        ({"options": OPTIONS}, "the gold answer None is not an option letter"),
        (
            {"answer": "E", "options": OPTIONS},
            "the gold answer E is not an option; the options are A to D",
        ),
        (
            {"answer": "A", "options": "ABCD"},
            "the gold answer's options are not a list of strings",
        ),
        ({"answer": "A", "options": ["x"] * 27}, "27 options, but letters go from A to Z"),
    ],
)
@pytest.mark.parametrize("rule", RULES)
def test_gold_outside_options_is_error(rule, gold, reason):
    assert OptionLetter(rule=rule).verify(["A"], [gold]) == [Verdict("error", reason)]


golds = st.sampled_from([*"ABCD", *({"answer": a, "options": OPTIONS} for a in "ABCDE"), None, 7])


@pytest.mark.parametrize(
    ("gold", "fault"),
    [
        ("B", ""),
        ({"answer": "D", "options": OPTIONS}, ""),
        ("30", "the gold answer '30' is not an option letter; expected a letter from A to Z"),
        ("b", "the gold answer 'b' is not an option letter; expected a letter from A to Z"),
        (None, "the gold answer None is not an option letter; expected a letter from A to Z"),
        (
            {"answer": "E", "options": OPTIONS},
            "the gold answer E is not an option; the options are A to D; "
            "expected a letter from A to D",
        ),
        (
            {"letter": "A", "options": OPTIONS},
            "the gold answer None is not an option letter; expected a letter from A to D",
        ),
    ],
)
def test_check_gold_describes_fault(gold, fault):
    assert OptionLetter().check_gold(gold) == fault


def test_only_permissive_rule_needs_option_texts():
    faults = {rule: OptionLetter(rule).check_gold("B") for rule in RULES}
    assert [rule for rule in RULES if faults[rule]] == ["permissive"]
    assert "needs the options' texts" in faults["permissive"]


@pytest.mark.parametrize("rule", RULES)
@given(golds=st.lists(golds))
def test_check_gold_agrees_with_verify(rule, golds):
    verifier = OptionLetter(rule)
    for gold in golds:
        (verdict,) = verifier.verify(["B"], [gold])
        assert (verdict.status == "error") == bool(verifier.check_gold(gold))


def test_other_rules_accept_bare_gold():
    assert OptionLetter("whole_response").verify(["(E)"], ["E"])[0].passed
    assert OptionLetter("first_explicit").verify(["Answer: E"], ["E"])[0].passed
    assert OptionLetter("permissive").verify(["E"], ["E"]) == [
        Verdict("error", "the permissive rule needs the options' texts in the gold answer")
    ]


def test_letters_extend_to_number_of_options():
    gold = {"answer": "J", "options": [f"text {i}" for i in range(10)]}
    for rule, response in zip(RULES, ["J", "The answer is J", "J. text 9"], strict=True):
        assert OptionLetter(rule).verify([response], [gold])[0].passed


def test_option_text_is_not_read_as_rejection():
    """Words of an option such as "is not ..." must not count as its rejection."""
    texts = ["suggests that it rained", "is not supported", "describes a cat", "fails to say why"]
    for number, letter in enumerate("ABCD"):
        gold = {"answer": letter, "options": texts}
        for form in ("{}. {}", "({}) {}", "Answer: {}) {}", "The answer is **{}**: {}"):
            response = form.format(letter, texts[number])
            assert OptionLetter("first_explicit").verify([response], [gold])[0].passed, response


#: Texts whose words deny, suppose or ask, or name letters.
DENYING = [
    *("None of the above", "None of these.", "Not enough information", "Neither of them", "No"),
    *("No, it does not follow", "It is impossible to tell", "The author never says so"),
    *("If it rained, nobody walked", "Perhaps it rained", "Neither A nor B", "It is not A but B"),
    *("It can't be known whether it rained", "Unless it rained, he walks", "rain fell"),
]
#: Forms that state an option by its text and its letter.
WITH_TEXT = [
    "My final answer is {text} ({letter}).",
    "The answer is **{text}** ({letter})",
    "Answer: {text}, ({letter})",
    "Answer: {text} - {letter}",
    "I choose {text} (option {letter}).",
    "The answer is {text} (Option {letter}).",
    'The correct answer is "{text}", option {letter}.',
    "So, {text} [{letter}].",
    "The answer is {text}, which is {letter}.",
    "\\boxed{{{text} ({letter})}}",
    "{text} ({letter})",
    "{text} ({letter}) is correct.",
    "He may walk.\n\n{text} ({letter})\n\nThe passage says so.",
    "The answer is {letter} ({text}).",
    "Therefore, {letter} ({text}).",
    "({letter}) {text}",
    "Answer: {letter}) {text}",
]
#: Forms that mention both and state nothing.
UNSTATED = [
    "It is not {text} ({letter}).",
    "The answer is not {text} ({letter}).",
    "I don't think the answer is {text} ({letter}).",
    "If the answer is {text} ({letter}), he walks.",
    "Is it {text} ({letter})?",
    "It could be {text} ({letter}).",
    "Some would say the answer is {text} ({letter}).",
    "The passage says that {text} ({letter}).",
    "{text} ({letter}) is wrong.",
    "{letter} ({text}) is wrong.",
    "So {letter} ({text}) is wrong.",
    "The answer is either {text} ({letter}) or he slept ({other}).",
    "Either he slept ({other}) or {text} ({letter}).",
    "not {letter}",
]


def read_with_options(form: str, text: str, letter: str, other: str) -> str:
    """Read a form filled with an option's text and letter, and those of a different option."""
    options = [f"claim {number}" for number in range(4)]
    options["ABCD".index(letter)], options["ABCD".index(other)] = text, "he slept"
    response = form.format(text=text.rstrip("."), letter=letter, other=other)
    return find_first_statement(response, "H", options).letters


@given(st.sampled_from(WITH_TEXT), st.sampled_from(DENYING), st.permutations("ABCD"))
def test_words_of_an_option_do_not_deny_its_letter(form, text, order):
    letter, other, *_ = order
    assert read_with_options(form, text, letter, other) == letter
    refuted = "{other} (he slept) is wrong, and he slept ({other}) says little.\n\n"
    assert read_with_options(refuted + form, text, letter, other) == letter


@given(st.sampled_from(UNSTATED), st.sampled_from(DENYING), st.permutations("ABCD"))
def test_an_option_with_its_letter_can_be_denied(form, text, order):
    letter, other, *_ = order
    stated = read_with_options(form, text, letter, other)
    assert stated == "" or set(stated) == {letter, other}
    followed = form + "\n\nThe answer is {other}."
    if "{other}" not in form:
        assert read_with_options(followed, text, letter, other) == other


@pytest.mark.parametrize(
    ("response", "letter"),
    [
        ("My final answer is None of the above (D).", "D"),
        ("None of the above (d)", "D"),
        ("My final answer is None of the above (A).", ""),
        ("None of the above (A)", ""),
        ("None of the above: A is wrong", ""),
        ("None of the above, A is wrong", ""),
        ("The answer is none (D)", ""),
        ("The answer is A, and none of the above (D) is wrong.", "A"),
        ("The answer is A, and none of the above (D) goes too far.", "A"),
        ("The answer is B and none of the above (D) cannot hold.", "B"),
        ("The answer is A and none of the above (D).", "AD"),
        ("None of the above (D) is wrong, so none of these (C).", "C"),
    ],
)
def test_a_text_belongs_to_its_own_letter(response, letter):
    options = ["he walks", "he slept", "None of these", "None of the above"]
    assert find_first_statement(response, "H", options).letters == letter


def test_suggests_nearest_rule():
    with pytest.raises(UserError, match="unknown rule 'first_explicite'; did you mean 'first_exp"):
        OptionLetter(rule="first_explicite")


words = st.sampled_from(
    [*"ABCDE", "A.", "(B)", "the", "answer", "is", "not", "wrong", "so", "and", "or", ",", "\n"]
)
texts = st.text() | st.lists(words).map(" ".join)


@pytest.mark.parametrize("rule", RULES)
@given(items=st.lists(st.tuples(texts, golds)), random=st.randoms(use_true_random=False))
def test_verdicts_do_not_depend_on_order(rule, items, random):
    verifier = OptionLetter(rule)
    verdicts = verifier.verify([t for t, _ in items], [g for _, g in items])
    assert len(verdicts) == len(items)
    order = list(range(len(items)))
    random.shuffle(order)
    again = verifier.verify([items[i][0] for i in order], [items[i][1] for i in order])
    assert again == [verdicts[i] for i in order]


@given(texts, st.sampled_from("ABCD"))
def test_rules_pass_one_gold_and_agree_on_letters(text, letter):
    golds = [{"answer": a, "options": OPTIONS} for a in "ABCD"]
    passing = {
        rule: [g["answer"] for g in golds if OptionLetter(rule).verify([text], [g])[0].passed]
        for rule in RULES
    }
    assert all(len(letters) <= 1 for letters in passing.values())
    if passing["whole_response"]:
        assert passing["whole_response"] == passing["first_explicit"] == passing["permissive"]


# Statements of one letter as models write them, and text around them.
STATEMENTS = [
    "{}\n",
    "({})",
    "{}.",
    "Answer: {}.",
    "The answer is {}.",
    "The correct answer is most likely ({}).",
    "So the answer is clearly option {}.",
    "I would choose {}.",
    "Therefore, ({}).",
    "It must be {}.",
    "\\boxed{{{}}}.",
    "Option {}.",
    "{} is correct.",
]
EMPHASIS = [
    *("{}", "**{}**", "*{}*", "__{}__", "_{}_", "`{}`", "<b>{}</b>", "<strong>{}</strong>"),
    *('"{}"', "“{}”", "[{}]", "【{}】", "\\textbf{{{}}}", "\\text{{{}}}", "${}$", "**({})**"),
]
REMARKS = [
    "",
    " {} is wrong.",
    " It cannot be {}.",
    "\n\nExplanation: {} is not supported by the passage.",
    " {} does not follow.",
    " If {} held, it would not have rained.",
    " Could it be {}? No.",
    "\nNo other option fits, not even {}.",
    " Actually, {} is tempting but wrong.",
]
LEADS = [
    "",
    "The passage speaks of rain. ",
    "I think {} is wrong. ",
    "It is not {}.\n",
    "Suppose {}. Then nobody walks, a contradiction. ",
    "Is it {}? It is not.\n\n",
    "A) says he walks.\nB) says it rained.\nC) says neither.\nD) says both.\n\n",
]
letters = st.sampled_from("ABCD")


@given(
    st.sampled_from(LEADS),
    st.sampled_from(STATEMENTS),
    st.sampled_from(EMPHASIS),
    st.sampled_from(REMARKS),
    letters,
    letters,
)
def test_reads_statement_despite_emphasis_and_rejected_letters(
    lead, statement, emphasis, remark, letter, other
):
    if letter == other:
        return
    parts = (lead.format(other), statement.format(emphasis.format(letter)), remark.format(other))
    assert find_first_statement("".join(parts), "H").letters == letter


@given(
    st.lists(
        st.sampled_from([f for f in [*LEADS, *STATEMENTS, *REMARKS] if "A)" not in f]),
        max_size=5,
    ),
    st.permutations("BCDE"),
)
def test_reading_commutes_with_letter_permutation(forms, order):
    """Except for A, which is also a word, and for lists in alphabetical order."""
    renamed = dict(zip("BCDE", order, strict=True))
    first = ["BCDE"[number % 2] for number in range(len(forms))]
    text = " ".join(f.format(x) for f, x in zip(forms, first, strict=True))
    again = " ".join(f.format(renamed[x]) for f, x in zip(forms, first, strict=True))
    if sum(f in ("{}\n", "({})", "{}.", "Option {}.") for f in forms) < 2:
        stated = find_first_statement(text, "H").letters
        assert find_first_statement(again, "H").letters == "".join(
            sorted(renamed[x] for x in stated)
        )


@given(letters, letters, st.sampled_from([", or rather {}", " - no, {}.", ". Wait, it is {}."]))
def test_correction_overrides_statement(letter, other, words):
    assert (
        find_first_statement(f"The answer is {letter}{words.format(other)}", "H").letters == other
    )


HOSTILE = [
    *("A ", "A or ", "A, ", "a ", "B. ", "(", "*", "`", "<", "_", "~~", "\n", "\x00", "  "),
    *("</think>", "the answer is ", "wait, A ", "\\boxed{", "if A ", "is not ", "most likely "),
]


@given(st.lists(st.sampled_from(HOSTILE), min_size=1, max_size=3))
@settings(max_examples=20, deadline=None)
def test_hostile_text_gives_letters_or_reason(parts):
    statement = find_first_statement(("".join(parts) * 5_000)[:5_000], "H")
    assert bool(statement.letters) != bool(statement.reason)


@given(st.text(alphabet=st.characters(exclude_categories=["Lu", "Ll", "Lo", "Lt", "Lm"])))
def test_text_without_letters_states_nothing(text):
    assert find_first_statement(text, "H").letters == ""


def test_describe_reports_rule_edition():
    assert OptionLetter("first_explicit").describe() == {"rules": 3}
    assert OptionLetter("whole_response").describe() == OptionLetter("permissive").describe() == {}


@pytest.mark.parametrize("repeated", ["B ", "B. ", "Option B is wrong, so C\n", "(a) one (b) two "])
def test_classifies_repeated_mention_once(repeated: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Classifying one mention takes a fraction of a millisecond; a text may have millions."""
    judged, really = [], statements._Context.classify

    def level(context: Any) -> Any:
        judged.append(context)
        return really(context)

    monkeypatch.setattr(statements._Context, "classify", level)
    statements._classify_mention.cache_clear()
    statements.find_first_statement(repeated * 20_000, "E", ["one", "two", "three", "four", "five"])
    assert 1 <= len(judged) < 500
