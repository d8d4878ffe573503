"""The study's problems: exact answers, balanced where they are few, parts that do not meet."""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controlled_study import tokens
from controlled_study.families import BY_NAME, CELLS, COIN, FAMILIES, Problem
from controlled_study.pretrain import batch_of, batches, encoded, padded
from controlled_study.sizes import SIZES
from controlled_study.splits import SPREAD, drawn, exposures, part_of, spread
from controlled_study.tasks import permuted, records
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


@pytest.mark.parametrize("family", [f for f in BY_NAME.values() if f.answers], ids=lambda f: f.name)
def test_few_answers_occur_equally_often(family: Any) -> None:
    rng = Random(1)
    for length in family.lengths:
        found = Counter(family.problem(rng, length).answer for _ in range(1_000))
        assert len(found) == family.answers
        expected = 1_000 / family.answers
        assert all(abs(count - expected) < 5 * expected**0.5 for count in found.values())


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


def test_permuted_answers_stay_in_their_cell() -> None:
    found = spread("pool", 640)
    answers = permuted(found, "pool")
    assert answers == permuted(found, "pool")
    for cell in {p.cell for p in found}:
        here = [i for i, p in enumerate(found) if p.cell == cell]
        assert Counter(answers[i] for i in here) == Counter(found[i].answer for i in here)
    changed = sum(a != p.answer for a, p in zip(answers, found, strict=True))
    assert changed > 0.6 * len(found)


def test_a_null_of_luck_has_answers_that_nothing_tells() -> None:
    lines = records("luck", "pool", SIZES["small"])
    assert {line["family"] for line in lines} == {COIN.name}
    assert len({line["question"] for line in lines}) == len(lines) == SIZES["small"].null_pool
    ones = sum(line["answer"] == "1" for line in lines)
    assert abs(ones - len(lines) / 2) < 2.5 * len(lines) ** 0.5
    seen = next(drawn("pretrain", (COIN, 6), Random(0)))
    assert seen.question not in {line["question"] for line in lines}
