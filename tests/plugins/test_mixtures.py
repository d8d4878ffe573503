"""Mixtures of states."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gapft_harness.core.errors import UserError
from gapft_harness.core.streams import Stream
from gapft_harness.plugins.selectors.evidence_states import gapft, replay
from gapft_harness.plugins.selectors.mixtures import gapft_with_replay
from tests.pools import build_pool

RNG = Stream(13, "select/x")


@given(st.integers(0, 20), st.floats(0, 1))
def test_replay_has_its_share_of_the_slots(n: int, share: float) -> None:
    source = build_pool(20, 20)
    selection = gapft_with_replay(source, n, RNG, share)
    states = Counter(e.state for e in selection)
    assert states["G"] == round(share * n)
    assert len(selection) == n == len({e.problem_id for e in selection})


def test_share_0_is_gapft_and_1_is_replay() -> None:
    source = build_pool(20, 20)
    assert list(gapft_with_replay(source, 7, RNG, 0)) == list(gapft(source, 7, RNG))
    assert list(gapft_with_replay(source, 7, RNG, 1)) == list(replay(source, 7, RNG))


@pytest.mark.parametrize("share", [-0.1, 1.1, "half", True])
def test_rejects_invalid_share(share: Any) -> None:
    with pytest.raises(UserError, match=r"share is .* from 0 to 1"):
        gapft_with_replay(build_pool(2, 2), 2, RNG, share)
