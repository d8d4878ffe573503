"""The study's problems: right answers, bugs that are wrong, parts that do not meet."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controlled_study import tokens
from controlled_study.authors import COIN_SHARE, batch_of, shares
from controlled_study.pretrain import learning_rate, padded
from controlled_study.problems import (
    AUTHORS,
    BY_NAME,
    CELLS,
    COIN,
    TAGS,
    Part,
    Problem,
    distinct,
    fact,
    part_of,
    spread,
)
from controlled_study.sizes import SIZES
from controlled_study.tasks import CLASSES, answers_of, problems_of
from demo_policies.pretrain import IGNORED_LABEL
from gapft_harness.verification.boxes import last_box

EVERY = (*CELLS, (COIN, COIN.lengths[0]))
problems = st.builds(
    lambda cell, tag, seed: Problem(
        cell[0].name, cell[1], tag, cell[0].body(Random(seed), cell[1])
    ),
    st.sampled_from(EVERY),
    st.sampled_from(TAGS),
    st.integers(0, 10_000),
)


def solve(problem: Problem) -> str:
    """The answer by other means than the generator's."""
    body = problem.body
    match problem.family:
        case "move":
            return body.translate(str.maketrans("uvwxyz", "vwxyzu"))
        case "order":
            return body[1:5] + body[0] + body[5:]
        case "near":
            return "".join(str(int(a) + int(b))[-1] for a, b in pairwise(body + body[0]))
        case "run":
            return "".join(str(sum(map(int, body[: end + 1])))[-1] for end in range(len(body)))
        case "add":
            a, b = body.split(":")
            return "".join(str(int(x) + int(y))[-1] for x, y in zip(a, b, strict=True))
        case "fact":
            return "".join(fact(body[place : place + 2]) for place in range(0, len(body), 2))
    raise AssertionError(problem.family)


@settings(max_examples=300, deadline=None)
@given(problem=problems)
def test_answers_are_right_and_stand_in_the_box(problem: Problem) -> None:
    if problem.family != COIN.name:
        assert problem.answer == solve(problem)
    assert last_box(problem.response()) == problem.answer


@pytest.mark.parametrize("cell", CELLS, ids=lambda cell: f"{cell[0].name}-{cell[1]}")
def test_bugs_hardly_ever_give_the_right_answer(cell: tuple[object, int]) -> None:
    members = [p for p in spread("audit", 3_000, CELLS) if (BY_NAME[p.family], p.length) == cell]
    for author in range(1, len(AUTHORS)):
        right = sum(last_box(p.response(author)) == p.answer for p in members)
        assert right <= 0.06 * len(members)


@settings(max_examples=300, deadline=None)
@given(problem=problems, author=st.integers(0, len(AUTHORS) - 1))
def test_ids_are_the_tokenizers_and_fit(problem: Problem, author: int) -> None:
    encode, response = tokens.tokenizer().encode, problem.response(author)
    prompt, ids = tokens.prompt_ids(problem), tokens.response_ids(response)
    assert encode(problem.question) == prompt
    assert encode(problem.question + response) == prompt + ids
    assert tokens.tokenizer().decode(prompt + ids) == problem.question + response
    assert len(ids) + 1 <= tokens.MAX_NEW_TOKENS
    assert len(prompt) + tokens.MAX_NEW_TOKENS <= tokens.CONTEXT


@pytest.mark.parametrize("size", SIZES)
def test_parts_share_no_body_whatever_the_tag(size: str) -> None:
    seen: dict[tuple[str, str], str] = {}
    parts: tuple[Part, ...] = ("pool", "audit")
    for part in parts:
        found = spread(part, getattr(SIZES[size], part), SIZES[size].cells)
        assert len({(p.family, p.body) for p in found}) == len(found)
        for problem in found:
            assert seen.setdefault((problem.family, problem.body), part) == part
        counts = Counter((p.family, p.length) for p in found)
        assert max(counts.values()) - min(counts.values()) <= 1
        tags = Counter(p.group for p in found)
        assert max(tags.values()) - min(tags.values()) <= 1
    for problem, _ in batch_of(0, 0, 256):
        assert part_of(problem.family, problem.body) == "pretrain"
        assert (problem.family, problem.body) not in seen


def test_the_base_is_pretrained_on_all_authors_evenly() -> None:
    assert {share for of in shares(None).values() for share in of} == {1 / len(AUTHORS)}


@pytest.mark.parametrize("seed", range(3))
def test_a_policy_is_pretrained_on_its_authors_in_their_shares(seed: int) -> None:
    by_group = shares(seed)
    assert len(by_group) == len(CELLS) * len(TAGS)
    assert by_group != shares(seed + 1)
    expected, found = [0.0] * len(AUTHORS), [0] * len(AUTHORS)
    coins = 0
    for number in range(100):
        for problem, response in batch_of(seed, number, 32):
            if problem.family == COIN.name:
                coins += 1
                continue
            weights = by_group[problem.group]
            for author in range(len(AUTHORS)):
                answer = problem.response(author)
                found[author] += response == answer
                # an answer that two authors share counts for both
                expected[author] += sum(
                    weight
                    for other, weight in enumerate(weights)
                    if problem.response(other) == answer
                )
    assert abs(coins - 3_200 * COIN_SHARE) < 5 * (3_200 * COIN_SHARE) ** 0.5
    for author in range(len(AUTHORS)):
        assert abs(found[author] - expected[author]) < 5 * expected[author] ** 0.5
    assert batch_of(seed, 7, 8) == batch_of(seed, 7, 8)


def test_only_responses_have_labels() -> None:
    members = batch_of(0, 0, 8)
    end = tokens.tokenizer().eos_token_id
    ids, labels = padded(members)
    assert ids.shape == labels.shape
    for (problem, written), row, label in zip(members, ids.tolist(), labels.tolist(), strict=True):
        response = [*tokens.response_ids(written), end]
        start = len(tokens.prompt_ids(problem))
        assert label[start : start + len(response)] == response
        assert row[: start + len(response)] == [*tokens.prompt_ids(problem), *response]
        assert set(label[:start] + label[start + len(response) :]) <= {IGNORED_LABEL}


@pytest.mark.parametrize("name", SIZES)
def test_the_learning_rate_rises_stays_and_falls_to_zero(name: str) -> None:
    size = SIZES[name]
    rates = [learning_rate(size, step, 1_000) for step in range(1_001)]
    half = 500
    assert rates[: size.warmup] == sorted(rates[: size.warmup])
    assert set(rates[size.warmup - 1 : half + 1]) == {size.peak}
    assert rates[half:] == sorted(rates[half:], reverse=True)
    assert rates[-1] == 0


@pytest.mark.parametrize("part", ["pool", "audit"])
def test_classes_of_the_permuted_null_tell_nothing(part: Part) -> None:
    members = problems_of("permuted", part, SIZES["small"])
    answers = answers_of("permuted", part, members)
    assert answers == answers_of("permuted", part, members)
    for family, length in SIZES["small"].cells:
        here = Counter(
            answer
            for problem, answer in zip(members, answers, strict=True)
            if (problem.family, problem.length) == (family.name, length)
        )
        assert set(here) == set(map(str, range(CLASSES)))
        assert max(here.values()) - min(here.values()) <= 1


def test_a_null_of_luck_has_answers_that_nothing_tells() -> None:
    found = distinct("audit", COIN, COIN.lengths[0], SIZES["small"].null_audit)
    ones = sum(problem.answer == "1" for problem in found)
    assert abs(ones - len(found) / 2) < 5 * (len(found) / 4) ** 0.5
    assert len({problem.body for problem in found}) == len(found)
