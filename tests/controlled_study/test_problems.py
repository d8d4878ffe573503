"""The study's problems: exact answers, balanced where they are few, parts that do not meet."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controlled_study import tokens
from controlled_study.families import BY_NAME, CELLS, COIN, FAMILIES, Family, Problem
from controlled_study.pretrain import batch_of, batches, encoded, padded
from controlled_study.sizes import SIZES
from controlled_study.splits import SPREAD, Part, distinct, drawn, exposures, part_of, spread
from controlled_study.tasks import RUNS, permuted, records
from demo_policies.pretrain import IGNORED_LABEL
from gapft_harness.verification.boxes import last_box

EVERY = (*CELLS, (COIN, COIN.lengths[0]))
problems = st.builds(
    lambda cell, seed: cell[0].problem(Random(seed), cell[1]),
    st.sampled_from(EVERY),
    st.integers(0, 10_000),
)

OPERATIONS = {
    "r": lambda text: "".join(reversed(text)),
    "t": lambda text: text[1:] + text[:1],
    "i": lambda text: text.translate(str.maketrans("0123456789", "1234567890")),
    "c": lambda text: text.translate(str.maketrans("0123456789", "9876543210")),
}


def solve(problem: Problem) -> str:
    """The answer by other means than the generator's."""
    body = problem.body
    match problem.family:
        case "add":
            return str(sum(map(int, body.split("+"))))
        case "base":
            digits, base = body.split(":")
            return str(int(digits, int(base)))
        case "both":
            return OPERATIONS[body[1]](OPERATIONS[body[0]](body[2:]))
        case "rewrite":
            text = body[1:]
            for _ in range(int(body[0])):
                text = text[1:] + text[0].translate(str.maketrans("wxyz", "xyzw"))
            return text
        case "sort":
            return "".join(sorted(body))
        case "mod":
            value = 0
            for sign, digit in zip("+" + body[1::2], body[::2], strict=True):
                value = eval(f"{value}{sign}{digit}")
            return str(value % 5)
        case "depth":
            rest, depth = body, 0
            while rest:
                rest, depth = peeled(rest), depth + 1
            return str(depth)
        case "parity":
            return str(int(body, 2).bit_count() % 2)
    raise AssertionError(problem.family)


def peeled(text: str) -> str:
    """Without the outermost pair of every group; an error where brackets do not match."""
    kept, opened = "", ""
    for sign in text:
        if sign in "([":
            kept += sign if opened else ""
            opened += sign
        else:
            assert opened[-1] + sign in ("()", "[]")
            opened = opened[:-1]
            kept += sign if opened else ""
    assert not opened
    return kept


@settings(max_examples=300, deadline=None)
@given(problem=problems)
def test_answers_are_right_and_stand_in_the_box(problem: Problem) -> None:
    if problem.family != COIN.name:
        assert problem.answer == solve(problem)
    assert last_box(problem.worked) == problem.answer


@settings(max_examples=300, deadline=None)
@given(problem=problems)
def test_ids_are_the_tokenizers_and_fit(problem: Problem) -> None:
    encode = tokens.tokenizer().encode
    prompt, response = tokens.prompt_ids(problem), tokens.response_ids(problem)
    assert encode(problem.question) == prompt
    assert encode(problem.question + problem.worked) == prompt + response
    assert tokens.tokenizer().decode(prompt + response) == problem.question + problem.worked
    assert len(response) + 1 <= tokens.MAX_NEW_TOKENS
    assert len(prompt) + len(response) + 1 <= tokens.WIDTH
    assert len(prompt) + tokens.MAX_NEW_TOKENS <= tokens.CONTEXT


FEW = [family for family in BY_NAME.values() if family.answers]


@pytest.mark.parametrize("family", FEW, ids=lambda f: f.name)
def test_few_answers_are_equally_likely(family: Family) -> None:
    rng = Random(1)
    for length in family.lengths:
        found = Counter(family.problem(rng, length).answer for _ in range(1_000))
        assert set(found) == set(family.answers)
        expected = 1_000 / len(family.answers)
        assert all(abs(count - expected) < 5 * expected**0.5 for count in found.values())


def spans(answers: Iterable[str], family: Family) -> int:
    """Of all of a family's answers, how often the commonest occurs more than the rarest."""
    found = Counter(answers)
    counts = [found[answer] for answer in family.answers]
    assert sum(counts) == found.total()
    return max(counts) - min(counts)


@settings(max_examples=30, deadline=None)
@given(
    family=st.sampled_from(FEW), count=st.integers(1, 40), part=st.sampled_from(("pool", "audit"))
)
def test_few_answers_occur_equally_often_in_every_cell(
    family: Family, count: int, part: Part
) -> None:
    found = [distinct(part, (family, length), count) for length in family.lengths]
    for problems in found:
        assert len({problem.question for problem in problems}) == count
        assert spans((problem.answer for problem in problems), family) <= 1
    assert spans((problem.answer for problems in found for problem in problems), family) <= 1


@pytest.mark.parametrize("part", ["pool", "audit"])
@pytest.mark.parametrize("run", RUNS)
@pytest.mark.parametrize("size", ["tiny", "small"])
def test_the_answers_that_runs_are_judged_by_are_balanced(size: str, run: str, part: Part) -> None:
    answers: dict[str, list[str]] = {}
    for line in records(run, part, SIZES[size]):
        answers.setdefault(line["family"], []).append(line["answer"])
        answers.setdefault(f"{line['family']}-{line['length']}", []).append(line["answer"])
    for where, each in answers.items():
        family = BY_NAME[where.split("-")[0]]
        if family.answers:
            assert spans(each, family) <= 1


def test_parts_are_disjoint_and_every_cell_has_its_share() -> None:
    parts = {part: spread(part, 320) for part in ("tuning", "pool", "audit")}  # type: ignore[arg-type]
    questions = {part: {p.question for p in found} for part, found in parts.items()}
    assert all(len(found) == 320 for found in questions.values())
    assert len(set().union(*questions.values())) == 3 * 320
    for part, found in parts.items():
        assert {part_of(p) for p in found} == {part}
        assert set(Counter(p.cell for p in found).values()) == {10}
    assert {part_of(p) for p in batch_of("mixed", 0, 0, 64)} == {"pretrain"}


@pytest.mark.parametrize("size", SIZES)
def test_the_space_is_large_enough_for_every_size(size: str) -> None:
    assert len(spread("audit", SIZES[size].audit)) == SIZES[size].audit
    assert len(spread("pool", SIZES[size].pool)) == SIZES[size].pool


@pytest.mark.parametrize("seed", range(3))
def test_exposures_spread_and_mastery_is_all_or_nothing(seed: int) -> None:
    mixed = exposures("mixed", seed)
    assert sum(mixed.values()) == pytest.approx(1)
    cells = [share for (family, _), share in mixed.items() if family is not COIN]
    assert len(cells) == 32
    assert 20 < max(cells) / min(cells) <= SPREAD
    assert mixed != exposures("mixed", seed + 1)
    mastery = exposures("mastery", seed)
    known = {family.name for (family, _), share in mastery.items() if share}
    assert len(known) == len(FAMILIES) // 2
    assert {share for (family, _), share in mastery.items() if family.name in known} == {1 / 16}


def test_batches_are_the_same_wherever_they_are_made() -> None:
    here, beside = batches("mixed", 3, 4, 0), batches("mixed", 3, 4, 2)
    for number in range(20):
        cells, rows = next(here)
        assert (cells, rows) == next(beside)
        problems = batch_of("mixed", 3, number, 4)
        assert rows == encoded(problems)
        assert cells == Counter(p.cell for p in problems)
    beside.close()


def test_only_responses_have_labels() -> None:
    members = batch_of("mixed", 0, 0, 8)
    end = tokens.tokenizer().eos_token_id
    ids, labels = padded(encoded(members), tokens.WIDTH)
    assert ids.shape == labels.shape == (8, tokens.WIDTH)
    for problem, row, label in zip(members, ids.tolist(), labels.tolist(), strict=True):
        response = [*tokens.response_ids(problem), end]
        start = len(tokens.prompt_ids(problem))
        assert label[start : start + len(response)] == response
        assert row[start : start + len(response)] == response
        assert set(label[:start] + label[start + len(response) :]) == {IGNORED_LABEL}


@pytest.mark.parametrize("part", ["pool", "audit"])
@pytest.mark.parametrize("count", [64, 640, 1_280, 1_500])
def test_permuted_answers_tell_nothing(count: int, part: Part) -> None:
    found = spread(part, count)
    answers = permuted(found, part)
    assert answers == permuted(found, part)
    for family, length in CELLS:
        here = [i for i, p in enumerate(found) if (p.family, p.length) == (family.name, length)]
        pairs = Counter((found[i].answer, answers[i]) for i in here)
        true, given = (Counter(pair[side] for pair in pairs.elements()) for side in (0, 1))
        assert true == given
        if not family.answers:
            assert not any(a == b for a, b in pairs)
            continue
        # what is given does not depend on what is true, as nearly as whole numbers allow
        for a in true:
            got = [pairs[a, b] for b in given]
            assert max(got) - min(got) <= 1


def test_the_page_says_how_many_permuted_answers_stay_right() -> None:
    found = spread("audit", SIZES["small"].null_audit)
    answers = permuted(found, "audit")
    kept = Counter(p.family for p, a in zip(found, answers, strict=True) if p.answer == a)
    assert kept == {"mod": 33, "depth": 42, "parity": 80}
    page = (Path(__file__).parents[2] / "docs/controlled-study.md").read_text("utf-8")
    assert "in the audit of `small` 33, 42 and 80 of 1,280" in page


def test_no_answer_can_be_kept_where_half_are_the_same() -> None:
    same = [Problem("sort", 4, body, (), "1122") for body in ("1122", "2211")]
    other = Problem("sort", 4, "3322", (), "2233")
    with pytest.raises(ValueError, match="2 of 3 problems have one answer"):
        permuted([*same, other], "pool")


def test_a_null_of_luck_has_answers_that_nothing_tells() -> None:
    lines = records("luck", "pool", SIZES["small"])
    assert {line["family"] for line in lines} == {COIN.name}
    assert len({line["question"] for line in lines}) == len(lines) == SIZES["small"].null_pool
    seen = next(drawn("pretrain", (COIN, 6), Random(0)))
    assert seen.question not in {line["question"] for line in lines}
