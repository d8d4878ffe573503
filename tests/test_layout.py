"""Paths of a run directory: what is spelt is read back, and no two things have one path."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gapft_harness.core.errors import GapftError
from gapft_harness.core.records import Arm
from gapft_harness.run_directory import layout
from gapft_harness.run_directory.layout import Place, read

conditions = st.text("aseed-_.0123", min_size=1, max_size=12) | st.sampled_from(
    ["gapft", "a-seed1", "a-seed1.b", "deltaX", "x.y", "-seed2", "seed", "a-seed01"]
)
variants = st.text("ab-_0@seed", max_size=8)
arms = st.builds(Arm, conditions, st.integers(-9, 99), variants)
experiments = st.sampled_from(["exposed", "calibration-0.25", "scale-1e-05", "scale-0.75", "x.y.z"])
splits = st.sampled_from(["pool", "audit", "calibration", "audit/whole", "audit/pooled"])
counts = st.tuples(st.integers(0, 99), st.integers(0, 99))

#: What is spelt, by the place that its path says it is.
places: st.SearchStrategy[tuple[str, Place]] = st.one_of(
    splits.map(lambda s: (layout.problems(s), Place("problems", s))),
    splits.map(lambda s: (layout.responses(s), Place("responses", s))),
    splits.map(lambda s: (layout.states(s), Place("states", s))),
    st.builds(lambda s, w: (layout.states(s, w), Place("states", s, window=w)), splits, counts),
    arms.map(lambda arm: (layout.selection(arm), Place("selections", arm=arm.original))),
    arms.map(lambda arm: (layout.adapter(arm), Place("adapters", arm=arm.original))),
    arms.map(lambda arm: (layout.of_arm("scaled", arm), Place("scaled", arm=arm))),
    arms.map(lambda arm: (layout.decisions(arm), Place("decisions", arm=arm))),
    st.builds(
        lambda arm, of: (layout.decisions(arm, of), Place("decisions", arm=arm, of=of)),
        arms,
        experiments,
    ),
)


@given(places)
def test_what_is_spelt_is_read_back(place: tuple[str, Place]) -> None:
    path, expected = place
    assert read(path) == expected


@given(arms)
def test_an_arm_is_read_from_its_name(arm: Arm) -> None:
    assert layout.arm_of(arm.name) == arm


@given(places, places)
def test_no_two_things_have_one_path(one: Any, other: Any) -> None:
    assert (one[0] == other[0]) == (one[1] == other[1])


def test_what_has_which_path() -> None:
    arm = Arm("gapft", 13)
    assert arm.name == "gapft-seed13"
    assert layout.problems("pool") == "pool/problems.parquet"
    assert layout.responses("audit/other") == "audit/other/responses.parquet"
    assert layout.states("audit") == "audit/states.parquet"
    assert layout.selection(arm) == "selections/gapft-seed13.parquet"
    assert layout.adapter(arm) == "adapters/gapft-seed13"
    assert layout.decisions(arm) == "decisions/gapft-seed13.parquet"
    assert layout.decisions(arm, "exposed") == "decisions/gapft-seed13.exposed.parquet"
    assert layout.imported("pool") == "pool/.imported.partial"


def test_the_variant_of_an_arm_stands_behind_an_at() -> None:
    arm = Arm("gapft", 13, "whole")
    assert layout.decisions(arm) == "decisions/gapft-seed13@whole.parquet"
    assert read("decisions/gapft-seed13@whole.scale-0.5.parquet") == Place(
        "decisions", arm=arm, of="scale-0.5"
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
    assert read(path) is None


def test_a_place_has_the_name_that_the_manifest_gives_it() -> None:
    for path, name in {
        "pool/responses.parquet": "pool",
        "decisions/gapft-seed13.parquet": "gapft-seed13",
        "decisions/gapft-seed13@whole.exposed.parquet": "gapft-seed13@whole.exposed",
    }.items():
        place = read(path)
        assert place is not None
        assert place.name == layout.name_of(path) == name
        assert layout.judged(name) == path


def test_a_path_that_is_no_table_has_no_name() -> None:
    with pytest.raises(GapftError, match=r"^decisions/mine\.parquet: not a table "):
        layout.name_of("decisions/mine.parquet")
