"""The decomposition over rounds telescopes exactly, whatever the models."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gapft_harness.analysis.decomposition import Terms, decompose
from gapft_harness.analysis.rounds import Decodes, decompose_chain, decompose_step


@st.composite
def chains(draw):
    """Draw states and a chain of models, each with its own number of decodes."""
    states = np.array(draw(st.lists(st.sampled_from("GSU"), min_size=1, max_size=30)))
    counts = draw(st.lists(st.integers(1, 5), min_size=2, max_size=9))
    models = [
        Decodes(
            np.array(draw(st.lists(st.integers(0, n), min_size=states.size, max_size=states.size))),
            n,
        )
        for n in counts
    ]
    return states, models


@given(chains())
def test_terms_of_all_steps_add_up_to_the_complete_change(chain):
    states, models = chain
    steps = decompose_chain(states, models)
    total = decompose_step(states, models[0], models[-1])
    assert len(steps) == len(models) - 1
    assert Terms(*(sum(getattr(step, name) for step in steps) for name in "sug")) == total
    assert total.total == models[-1].pass_at_1 - models[0].pass_at_1


@given(chains(), st.data())
def test_a_model_inserted_into_a_chain_changes_no_sum(chain, data):
    states, models = chain
    place = data.draw(st.integers(1, len(models) - 1))
    n = data.draw(st.integers(1, 4))
    passes = data.draw(st.lists(st.integers(0, n), min_size=states.size, max_size=states.size))
    longer = [*models[:place], Decodes(np.array(passes), n), *models[place:]]
    sums = [sum(step.total for step in decompose_chain(states, c)) for c in (models, longer)]
    assert sums[0] == sums[1]


@given(st.lists(st.tuples(st.sampled_from("GSU"), st.booleans()), min_size=1, max_size=40))
def test_one_round_is_the_decomposition_of_the_paper(audit):
    states = np.array([state for state, _ in audit])
    passed = np.array([passed for _, passed in audit])
    before = Decodes((states == "G").astype(np.int64), 1)
    after = Decodes(passed.astype(np.int64), 1)
    assert decompose_step(states, before, after) == decompose(states, passed).terms


@given(chains())
def test_pooled_models_have_the_mean_of_their_changes(chain):
    states, models = chain
    seeds = [Decodes(np.minimum(model.passes, 1), 1) for model in models[1:]]
    pooled = decompose_step(states, models[0], Decodes.pool(seeds))
    parts = [decompose_step(states, models[0], seed) for seed in seeds]
    assert pooled.total == sum(part.total for part in parts) * Fraction(1, len(parts))


def test_refuses_what_does_not_fit():
    two, three = (Decodes(np.zeros(size, dtype=np.int64), 1) for size in (2, 3))
    with pytest.raises(ValueError, match="shapes"):
        decompose_step(np.array(["G", "S"]), two, three)
    with pytest.raises(ValueError, match="states"):
        decompose_step(np.array(["G", "X"]), two, two)
    with pytest.raises(ValueError, match="equal numbers"):
        Decodes.pool([two, Decodes(two.passes, 2)])
