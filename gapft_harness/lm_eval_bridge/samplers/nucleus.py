"""Draw next tokens with Transformers' temperature, top-k and top-p, from one uniform per row.

Transformers sorts the vocabulary of every row at every step. This module sorts a row only if its
nucleus may extend beyond the ``LARGEST`` logits, or if rounding or a tie decides where it ends. A
token is found by its place in the cumulative distribution over token ids. So a draw depends only on
the row's logits and its uniform, and a rounding error matters only at the borders of a token's
interval.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from transformers.generation.logits_process import TopKLogitsWarper, TopPLogitsWarper

from gapft_harness.core.records import Decoding

#: Number of largest logits that are searched for a row's nucleus; number that is tried first.
LARGEST, _FIRST_LARGEST = 1024, 64
#: Upper bound of the difference of two float32 sums of probabilities over one vocabulary. The
#: largest measured difference between Transformers' sums and exact ones was 6e-7, with up to
#: 256,000 tokens.
ROUNDING = 1e-5
#: Tokens per block when the cumulative distribution of a large vocabulary is summed by blocks.
_BLOCK_TOKENS = 512


def draw_tokens(logits: Tensor, uniforms: Tensor, decoding: Decoding) -> Tensor:
    """Draw one token for each row.

    Args:
        logits: float32, shape (rows, vocabulary).
        uniforms: float64 in [0, 1), shape (rows,).
        decoding: ``temperature``, ``top_k`` and ``top_p`` are used.

    Returns:
        Token ids, shape (rows,).
    """
    truncates = decoding.top_k > 0 or decoding.top_p < 1
    if not truncates or logits.shape[1] <= LARGEST:
        return _locate(_truncate_by_sorting(logits, decoding), uniforms)
    tokens = torch.empty(len(logits), dtype=torch.long, device=logits.device)
    open_rows = torch.arange(len(logits), device=logits.device)
    for largest in (_FIRST_LARGEST, LARGEST):
        cut = cut_largest(
            logits[open_rows] if largest > _FIRST_LARGEST else logits, decoding, largest
        )
        places = _locate(cut.scores, uniforms[open_rows])
        tokens[open_rows] = cut.ids.gather(1, places[:, None])[:, 0]
        open_rows = open_rows[~cut.is_certain]
        if not len(open_rows):
            return tokens
    tokens[open_rows] = _locate(
        _truncate_by_sorting(logits[open_rows], decoding), uniforms[open_rows]
    )
    return tokens


@dataclass(frozen=True, slots=True)
class LargestLogits:
    """The largest logits of each row, truncated.

    Attributes:
        ids: token ids, ascending in each row, shape (rows, ``largest``).
        scores: logits divided by the temperature; minus infinity where a token cannot be drawn.
        is_certain: shape (rows,): whether these include all tokens that can be drawn, exactly the
            ones that Transformers would keep.
    """

    ids: Tensor
    scores: Tensor
    is_certain: Tensor


def cut_largest(logits: Tensor, decoding: Decoding, largest: int = LARGEST) -> LargestLogits:
    """Apply temperature, top-k and top-p to the largest logits of each row.

    Transformers removes a token if it and all smaller ones have a total probability of at most
    1 - p (``TopPLogitsWarper``). This is the case if the larger ones have at least p.

    Args:
        logits: float32, shape (rows, vocabulary); the vocabulary is larger than ``largest``.
        decoding: ``temperature``, ``top_k`` and ``top_p`` are used.
        largest: number of logits of a row that are searched.
    """
    values, ids = logits.topk(largest)
    scores = values / decoding.temperature
    is_kept = torch.ones_like(scores, dtype=torch.bool)
    is_certain = scores[:, 0].isfinite()
    if decoding.top_k > 0:
        smallest = scores[:, min(decoding.top_k, largest) - 1, None]
        is_kept = scores >= smallest
        is_certain &= scores[:, -1] < smallest[:, 0]  # otherwise other tokens may be tied with it
    if decoding.top_p < 1:
        best = scores[:, :1]
        weights = (scores - best).exp().double() * is_kept
        if decoding.top_k > 0:
            total = weights.sum(-1, keepdim=True)
        else:
            total = (logits / decoding.temperature).sub_(best).exp_().sum(-1, keepdim=True).double()
        larger = (weights.cumsum(-1) - weights) / total  # probability of all larger logits
        inside = larger < decoding.top_p
        inside[:, 0] = True
        last = inside.sum(-1, keepdim=True) - 1
        following = (last + 1).clamp(max=largest - 1)
        is_certain &= (scores.gather(1, last) > scores.gather(1, following))[:, 0]
        is_certain &= ((larger[:, 1:] - decoding.top_p).abs() > ROUNDING).all(-1)
        is_kept &= inside
    ids, order = ids.sort(-1)
    scores = scores.masked_fill(~is_kept, -torch.inf).gather(1, order)
    return LargestLogits(ids, scores, is_certain)


def _truncate_by_sorting(logits: Tensor, decoding: Decoding) -> Tensor:
    """Apply Transformers' own temperature, top-k and top-p to complete rows."""
    scores = logits / decoding.temperature
    if decoding.top_k > 0:
        scores = TopKLogitsWarper(decoding.top_k)(None, scores)
    if decoding.top_p < 1:
        scores = TopPLogitsWarper(decoding.top_p)(None, scores)
    return scores


def _locate(scores: Tensor, uniforms: Tensor) -> Tensor:
    """Find the place in each row at which the cumulative softmax exceeds its uniform."""
    weights = (scores - scores.amax(-1, keepdim=True)).exp_()
    if weights.shape[1] <= LARGEST:
        return _find_place(weights, uniforms * weights.sum(-1, dtype=torch.float64))[0]
    # For large vocabularies, sum blocks first: one pass, and no small weight is lost.
    spare = -weights.shape[1] % _BLOCK_TOKENS
    blocks = torch.nn.functional.pad(weights, (0, spare)).view(len(weights), -1, _BLOCK_TOKENS)
    sums = blocks.sum(-1)
    block, rest = _find_place(sums, uniforms * sums.sum(-1, dtype=torch.float64))
    row = torch.arange(len(block), device=block.device)
    place, _ = _find_place(blocks[row, block], rest)
    return block * _BLOCK_TOKENS + place


def _find_place(weights: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    """Find the places where cumulative weights exceed targets, and the rest of each target there.

    If rounding puts a target beyond all weights, its place is the last weight above 0.
    """
    cumulative = weights.cumsum(-1, dtype=torch.float64)
    place = torch.searchsorted(cumulative, targets[:, None], right=True)
    place = torch.minimum(place, torch.searchsorted(cumulative, cumulative[:, -1:].contiguous()))
    previous_sum = cumulative.gather(1, place) - weights.gather(1, place)
    return place[:, 0], (targets - previous_sum[:, 0]).clamp(min=0)
