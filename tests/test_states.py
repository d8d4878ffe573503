"""Laws of the partition into G, S and U (Section 3.2), and the table that it writes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gapft_harness.core.errors import GapftError, PluginError
from gapft_harness.core.records import GREEDY, classify_state
from gapft_harness.run_directory.tables import response_schema
from gapft_harness.stages.search.states import compute_states

problems = st.lists(
    st.tuples(st.booleans(), st.lists(st.booleans(), min_size=8, max_size=8)), max_size=30
)


@given(problems, st.integers(1, 8))
def test_each_problem_has_the_state_of_its_outcomes(
    outcomes: list[tuple[bool, list[bool]]], k: int
) -> None:
    for greedy, samples in outcomes:
        state = classify_state(greedy, samples[:k])
        assert (state == "G") == greedy
        assert (state == "S") == (not greedy and True in samples[:k])
        assert (state == "U") == (not greedy and True not in samples[:k])


#: K = 4. Problem: (greedy passed, (passed, tokens) of each sample).
OUTCOMES: dict[str, tuple[bool, list[tuple[bool, int]]]] = {
    "early": (False, [(True, 7), (False, 1), (True, 3), (True, 5)]),
    "late": (False, [(False, 1), (False, 2), (False, 3), (True, 9)]),
    "tie": (False, [(False, 2), (True, 6), (True, 4), (True, 4)]),
    "solved": (True, [(True, 2), (False, 2), (True, 1), (False, 2)]),
    "solved once": (True, [(False, 2)] * 4),
    "missed": (False, [(False, 2)] * 4),
}
#: problem: (state, passing_samples, first_success, kept by ``shortest``, kept by ``first``)
EXPECTED = {
    "early": ("S", 3, 0, 2, 0),
    "late": ("S", 1, 3, 3, 3),
    "tie": ("S", 3, 1, 2, 1),
    "solved": ("G", 2, 0, GREEDY, GREEDY),
    "solved once": ("G", 0, None, GREEDY, GREEDY),
    "missed": ("U", 0, None, None, None),
}


def compute(
    folder: Path, keep: str, outcomes: dict[str, Any], plugins: Sequence[str] = ()
) -> tuple[dict[str, Any], Path]:
    """Compute the states of a searched pool; return the facts and the table's path."""
    rows = [
        {
            "problem_id": name,
            "index": index,
            "text": "t" * tokens,
            "token_ids": list(range(tokens)),
            "finish_reason": "stop",
            "seed": 0,
            "tokens_from": "generator",
            "attempts": [],
            "context_ids": [],
            "status": "pass" if passed else "fail",
            "reason": "",
        }
        for name, (greedy, samples) in sorted(outcomes.items())
        for index, (passed, tokens) in enumerate([(greedy, 1), *samples], start=GREEDY)
    ]
    responses, output = folder / "responses.parquet", folder / "states.parquet"
    pq.write_table(pa.Table.from_pylist(rows, schema=response_schema()), responses)
    facts = compute_states(
        output, responses, offset=0, k=4, keep=keep, drawn=4, plugin_files=plugins
    )
    return facts, output


@pytest.mark.parametrize(("keep", "column"), [("shortest", 3), ("first", 4)])
def test_partition_writes_states_counts_and_kept_sample(
    keep: str, column: int, tmp_path: Path
) -> None:
    facts, table = compute(tmp_path, keep, OUTCOMES)
    assert facts == {"states": {"G": 2, "S": 3, "U": 1}}
    rows = pq.read_table(table).to_pylist()
    assert [row["problem_id"] for row in rows] == sorted(OUTCOMES)
    for row in rows:
        expected = EXPECTED[row["problem_id"]]
        values = (row["state"], row["passing_samples"], row["first_success"], row["kept_index"])
        assert values == (*expected[:3], expected[column]), row["problem_id"]


def test_names_rule_that_keeps_failed_sample(tmp_path: Path) -> None:
    plugin = tmp_path / "plugin.py"
    plugin.write_text(
        "from dataclasses import replace\n"
        "from gapft_harness.api import hookimpl\n\n\n"
        "@hookimpl\n"
        "def register_response_rules(register):\n"
        "    register('made_up', lambda passing: replace(passing[0], text='better'))\n"
    )
    with pytest.raises(PluginError, match=r"'made_up' .* returned a response to problem early "):
        compute(tmp_path, "made_up", OUTCOMES, [str(plugin)])
    assert not (tmp_path / "states.parquet").exists()


def test_missing_sample_is_an_error(tmp_path: Path) -> None:
    cut = {**OUTCOMES, "late": (False, [(False, 1)] * 3)}
    with pytest.raises(GapftError, match=r"problem late: .*samples 0 to 3, found"):
        compute(tmp_path, "first", cut)
