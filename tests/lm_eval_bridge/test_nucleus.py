"""Truncation as in Transformers, and drawing by inverting the cumulative distribution."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers.generation.logits_process import (
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
)

from gapft_harness.core.records import Decoding
from gapft_harness.lm_eval_bridge.samplers import nucleus
from gapft_harness.lm_eval_bridge.samplers.nucleus import (
    ROUNDING,
    cut_largest,
    draw_tokens,
)


def compute_transformers_scores(logits: Any, decoding: Decoding) -> Any:
    """Truncate the logits with Transformers."""
    scores = TemperatureLogitsWarper(decoding.temperature)(None, logits)
    if decoding.top_k:
        scores = TopKLogitsWarper(decoding.top_k)(None, scores)
    if decoding.top_p < 1:
        scores = TopPLogitsWarper(decoding.top_p)(None, scores)
    return scores


def compute_own_scores(logits: Any, decoding: Decoding, largest: int) -> tuple[Any, Any]:
    """Truncate the logits with ``cut_largest``; return them and the rows that are certain."""
    cut = cut_largest(logits, decoding, largest)
    assert (cut.ids[:, 1:] > cut.ids[:, :-1]).all()
    return torch.full_like(logits, -torch.inf).scatter(1, cut.ids, cut.scores), cut.is_certain


#: Few values, so that many are tied; some cannot be drawn at all.
TIED = st.sampled_from([-torch.inf, -3.0, -1.0, 0.0, 0.5, 1.0, 4.0])
ANY = st.floats(-8, 8, width=32)


@st.composite
def cases(draw: st.DrawFn) -> tuple[Any, Decoding, int]:
    vocabulary = draw(st.integers(2, 40))
    values = draw(st.sampled_from([TIED, ANY, st.one_of(TIED, ANY)]))
    row = st.lists(values, min_size=vocabulary, max_size=vocabulary).filter(
        lambda row: max(row) > -torch.inf
    )
    logits = torch.tensor(draw(st.lists(row, min_size=1, max_size=4)))
    decoding = Decoding(
        True,
        1,
        temperature=draw(st.sampled_from([0.1, 0.7, 1.0, 1.3])),
        top_p=draw(st.one_of(st.just(1.0), st.floats(0.01, 0.9999))),
        top_k=draw(st.integers(0, vocabulary + 1)),
    )
    return logits, decoding, draw(st.integers(1, vocabulary - 1))


@given(cases())
@settings(max_examples=500)
def test_certain_rows_match_transformers(case: tuple[Any, Decoding, int]) -> None:
    logits, decoding, largest = case
    if decoding.top_k == 0 and decoding.top_p == 1:
        return  # nothing to truncate
    expected = compute_transformers_scores(logits, decoding)
    scores, certain = compute_own_scores(logits, decoding, largest)
    assert torch.equal(scores[certain], expected[certain])


@given(st.lists(st.integers(1, 50), min_size=12, max_size=12), st.integers(1, 11))
def test_boundary_within_rounding_is_uncertain(weights: list[int], count: int) -> None:
    """The first tokens have a probability of p up to rounding."""
    weights.sort(reverse=True)
    logits = torch.tensor([weights]).log()
    for offset in (0.0, 3e-8, -3e-8, 0.5 * ROUNDING, -0.5 * ROUNDING):
        top_p = sum(weights[:count]) / sum(weights) + offset
        if not 0 < top_p < 1:
            continue
        _, certain = compute_own_scores(logits, Decoding(True, 1, top_p=top_p), 11)
        assert not certain.any()


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lower the limits so that a vocabulary of 60 is large."""
    monkeypatch.setattr(nucleus, "LARGEST", 16)
    monkeypatch.setattr(nucleus, "_FIRST_LARGEST", 4)
    monkeypatch.setattr(nucleus, "_BLOCK_TOKENS", 7)


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize(("top_p", "top_k"), [(1.0, 0), (0.9, 0), (1.0, 5), (0.8, 30), (0.99, 0)])
@pytest.mark.parametrize("scale", [0.0, 0.3, 3.0])
def test_draw_inverts_cumulative_distribution(top_p: float, top_k: int, scale: float) -> None:
    """Test all ways to find a row's tokens: among few, among more, and by sorting."""
    torch.manual_seed(1)
    decoding = Decoding(True, 1, (), 0.7, top_p, top_k)
    uniforms = (torch.arange(400, dtype=torch.float64) + 0.377) / 400
    for row in scale * torch.randn(4, 60):
        drawn = draw_tokens(row.expand(400, 60), uniforms, decoding).numpy()
        scores = compute_transformers_scores(row[None], decoding)[0]
        cumulative = scores.double().softmax(-1).cumsum(-1).numpy()
        expected = np.searchsorted(cumulative, uniforms.numpy(), side="right")
        near = np.abs(cumulative[:, None] - uniforms.numpy()).min(0) < 1e-6
        assert ((drawn == expected) | near).all()
        assert near.sum() < 5
        assert (scores[torch.tensor(drawn)] > -torch.inf).all(), "impossible tokens are never drawn"


@pytest.mark.usefixtures("small_blocks")
def test_draw_does_not_depend_on_batch() -> None:
    torch.manual_seed(2)
    logits = torch.cat([3 * torch.randn(6, 60), torch.zeros(2, 60), 0.1 * torch.randn(4, 60)])
    uniforms = torch.rand(12, dtype=torch.float64)
    for decoding in (Decoding(True, 1, top_p=0.9), Decoding(True, 1), Decoding(True, 1, top_k=6)):
        together = draw_tokens(logits, uniforms, decoding)
        order = torch.randperm(12)
        assert torch.equal(draw_tokens(logits[order], uniforms[order], decoding), together[order])
        for place in range(12):
            alone = slice(place, place + 1)
            assert draw_tokens(logits[alone], uniforms[alone], decoding) == together[alone]


def test_edge_uniforms_draw_possible_tokens() -> None:
    logits = torch.full((2, 5000), -torch.inf)
    logits[:, 4000] = 1.0
    logits[:, 4100] = 1.0
    edges = torch.tensor([0.0, 1 - 2**-53], dtype=torch.float64)
    for decoding in (Decoding(True, 1), Decoding(True, 1, top_p=0.95), Decoding(True, 1, top_k=3)):
        assert draw_tokens(logits, edges, decoding).tolist() == [4000, 4100]
