"""Paths of a run directory: what is spelt is read back, and no two things have one path."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gapft_harness.core.errors import GapftError
from gapft_harness.core.records import Arm
from gapft_harness.run_directory import layout
from gapft_harness.run_directory.layout import RunFile, parse_path

conditions = st.text("aseed-_.0123", min_size=1, max_size=12) | st.sampled_from(
    ["gapft", "a-seed1", "a-seed1.b", "deltaX", "x.y", "-seed2", "seed", "a-seed01"]
)
variants = st.text("ab-_0@seed", max_size=8)
arms = st.builds(Arm, conditions, st.integers(-9, 99), variants)
experiments = st.sampled_from(["exposed", "calibration-0.25", "scale-1e-05", "scale-0.75", "x.y.z"])
splits = st.sampled_from(["pool", "audit", "calibration", "audit/whole", "audit/pooled"])
counts = st.tuples(st.integers(0, 99), st.integers(0, 99))

#: What is spelt, by the place that its path says it is.
places: st.SearchStrategy[tuple[str, RunFile]] = st.one_of(
    splits.map(lambda s: (layout.problems_path(s), RunFile("problems", s))),
    splits.map(lambda s: (layout.responses_path(s), RunFile("responses", s))),
    splits.map(lambda s: (layout.states_path(s), RunFile("states", s))),
    st.builds(
        lambda s, w: (layout.states_path(s, w), RunFile("states", s, window=w)), splits, counts
    ),
    arms.map(lambda arm: (layout.selection_path(arm), RunFile("selections", arm=arm.on_own_audit))),
    arms.map(lambda arm: (layout.adapter_path(arm), RunFile("adapters", arm=arm.on_own_audit))),
    arms.map(lambda arm: (layout.arm_path("scaled", arm), RunFile("scaled", arm=arm))),
    arms.map(lambda arm: (layout.decisions_path(arm), RunFile("decisions", arm=arm))),
    st.builds(
        lambda arm, of: (
            layout.decisions_path(arm, of),
            RunFile("decisions", arm=arm, experiment=of),
        ),
        arms,
        experiments,
    ),
)


@given(places)
def test_what_is_spelt_is_read_back(place: tuple[str, RunFile]) -> None:
    path, expected = place
    assert parse_path(path) == expected


@given(arms)
def test_an_arm_is_read_from_its_name(arm: Arm) -> None:
    assert layout.parse_arm(arm.name) == arm


@given(places, places)
def test_no_two_things_have_one_path(one: Any, other: Any) -> None:
    assert (one[0] == other[0]) == (one[1] == other[1])


def test_what_has_which_path() -> None:
    arm = Arm("gapft", 13)
    assert arm.name == "gapft-seed13"
    assert layout.problems_path("pool") == "pool/problems.parquet"
    assert layout.responses_path("audit/other") == "audit/other/responses.parquet"
    assert layout.states_path("audit") == "audit/states.parquet"
    assert layout.selection_path(arm) == "selections/gapft-seed13.parquet"
    assert layout.adapter_path(arm) == "adapters/gapft-seed13"
    assert layout.decisions_path(arm) == "decisions/gapft-seed13.parquet"
    assert layout.decisions_path(arm, "exposed") == "decisions/gapft-seed13.exposed.parquet"
    assert layout.import_folder("pool") == "pool/.imported.partial"


def test_the_variant_of_an_arm_stands_behind_an_at() -> None:
    arm = Arm("gapft", 13, "whole")
    assert layout.decisions_path(arm) == "decisions/gapft-seed13@whole.parquet"
    assert parse_path("decisions/gapft-seed13@whole.scale-0.5.parquet") == RunFile(
        "decisions", arm=arm, experiment="scale-0.5"
    )


@pytest.mark.parametrize(
    "path",
    [
        "recipe.yaml", "manifest.json", "pool", "pool/responses.jsonl", "problems.parquet",
        "report/index.html", "decisions/gapft.parquet", "decisions/gapft-seed13", "adapters/gapft",
        "selections/gapft-seed13.exposed.parquet", "adapters/gapft-seed13/README.md",
        "adapters/gapft-seed013", "pool/states/4.parquet", "pool/other.parquet", "gapft-seed13",
    ],
)  # fmt: skip
def test_what_is_none_of_these_says_nothing(path: str) -> None:
    assert parse_path(path) is None


def test_a_place_has_the_name_that_the_manifest_gives_it() -> None:
    for path, name in {
        "pool/responses.parquet": "pool",
        "decisions/gapft-seed13.parquet": "gapft-seed13",
        "decisions/gapft-seed13@whole.exposed.parquet": "gapft-seed13@whole.exposed",
    }.items():
        place = parse_path(path)
        assert place is not None
        assert place.name == layout.find_table_name(path) == name
        assert layout.judged_table_path(name) == path


def test_a_path_that_is_no_table_has_no_name() -> None:
    with pytest.raises(GapftError, match=r"^decisions/mine\.parquet: not a table "):
        layout.find_table_name("decisions/mine.parquet")
