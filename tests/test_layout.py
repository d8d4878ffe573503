"""Paths of a run directory: written paths can be parsed, and paths are unique."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gapft_harness.core.records import Arm
from gapft_harness.run_directory import layout
from gapft_harness.run_directory.layout import RunFile, parse_path

conditions = st.text("aseed-_.0123", min_size=1, max_size=12) | st.sampled_from(
    ["gapft", "a-seed1", "a-seed1.b", "deltaX", "x.y", "-seed2", "seed", "a-seed01"]
)
arms = st.builds(Arm, conditions, st.integers(-9, 99))
experiments = st.sampled_from(["exposed", "calibration-0.25", "scale-1e-05", "scale-0.75", "x.y.z"])
splits = st.sampled_from(["pool", "audit", "calibration"])
counts = st.tuples(st.integers(0, 99), st.integers(0, 99))

#: Pairs of a written path and its parsed form.
places: st.SearchStrategy[tuple[str, RunFile]] = st.one_of(
    splits.map(lambda s: (layout.problems_path(s), RunFile("problems", s))),
    splits.map(lambda s: (layout.responses_path(s), RunFile("responses", s))),
    splits.map(lambda s: (layout.states_path(s), RunFile("states", s))),
    st.builds(
        lambda s, w: (layout.states_path(s, w), RunFile("states", s, window=w)), splits, counts
    ),
    arms.map(lambda arm: (layout.selection_path(arm), RunFile("selections", arm=arm))),
    arms.map(lambda arm: (layout.adapter_path(arm), RunFile("adapters", arm=arm))),
    arms.map(lambda arm: (layout.arm_path("scaled", arm), RunFile("scaled", arm=arm))),
    arms.map(lambda arm: (layout.decisions_path(arm), RunFile("decisions", arm=arm))),
    st.builds(
        lambda arm, experiment: (
            layout.decisions_path(arm, experiment),
            RunFile("decisions", arm=arm, experiment=experiment),
        ),
        arms,
        experiments,
    ),
)


@given(places)
def test_parses_written_paths(place: tuple[str, RunFile]) -> None:
    path, expected = place
    assert parse_path(path) == expected
