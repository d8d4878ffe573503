"""Properties of problem ids."""

import random
import re

from hypothesis import given
from hypothesis import strategies as st

from gapft_harness.core.identities import assign_problem_ids, canonical_json, is_repeat

# Few distinct values, so that equal ids and equal contents are common.
documents = st.lists(
    st.fixed_dictionaries(
        {
            "id": st.integers(0, 3),
            "text": st.sampled_from(["a", "b", "ä", ""]),
            "kind": st.sampled_from([None, "x", {"k": [1]}]),
        }
    ),
    max_size=12,
)


def assign_ids(rows):
    return assign_problem_ids(rows, [str(row["id"]) for row in rows], ["text"])


@given(documents)
def test_ids_are_unique(rows):
    assert len(set(assign_ids(rows))) == len(rows)
    assert len(set(assign_problem_ids(rows))) == len(rows)


@given(documents, st.randoms(use_true_random=False))
def test_ids_do_not_depend_on_the_order(rows, rng: random.Random):
    def pairs(records):
        identified = zip(assign_ids(records), records, strict=True)
        return sorted((name, canonical_json(row)) for name, row in identified)

    shuffled = rng.sample(rows, len(rows))
    assert pairs(shuffled) == pairs(rows)


@given(documents, st.integers(4, 9))
def test_new_content_changes_no_other_id(rows, own_id):
    more = [*rows, {"id": own_id, "text": "new", "kind": None}]
    assert assign_ids(more)[:-1] == assign_ids(rows)


def test_id_contains_own_id_hash_and_number():
    row = {"id": 218, "text": "same"}
    first, second = assign_problem_ids([row, row], ["218", "218"])
    assert first.startswith("218-")
    assert len(first) == len("218-") + 12
    assert second == f"{first}#2"
    assert assign_problem_ids([row]) == [first.removeprefix("218-")]


# Own ids that look like the suffix of an id.
own_ids = st.text(max_size=20) | st.from_regex(
    re.compile(r"(a-)?[0-9a-f]{12}(#[0-9]{1,2})?\n?"), fullmatch=True
)


@given(st.lists(st.tuples(own_ids, st.sampled_from("abc")), max_size=12))
def test_own_ids_are_not_mistaken_for_repeats(rows):
    documents = [{"own": own, "text": text} for own, text in rows]
    ids = assign_problem_ids(documents, [own for own, _ in rows], ["text"])
    assert len(set(ids)) == len(ids)
    for text in "abc":
        text_ids = [name for name, row in zip(ids, rows, strict=True) if row[1] == text]
        assert sum(is_repeat(name) for name in text_ids) == max(0, len(text_ids) - 1)
