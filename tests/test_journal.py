"""The journal keeps every committed chunk, and nothing else, whatever cuts it off."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gapft_harness.core.errors import GapftError, UserError
from gapft_harness.core.records import GREEDY
from gapft_harness.hooks.protocols import Generated, Generation, Request
from gapft_harness.run_directory.journal import Journal


def answers(texts: list[str]) -> Generated:
    return Generated((1, 2, 3), tuple(Generation(t, (4, 5), "stop") for t in texts))


def asked(problems: str, *indices: int) -> list[Request]:
    seeds = tuple(7 + index for index in indices)
    return [Request(name, "?", indices, seeds) for name in problems]


def fill(journal: Journal) -> None:
    journal.append("greedy/0", asked("ab", GREEDY), [answers(["x"]), answers(["ü\n"])])
    journal.append("samples/0", asked("ab", 0, 1), [answers(["p", "q"])] * 2)


def contents(path: Path) -> dict[str, list[tuple[int, str, int]]]:
    journal = Journal(path)
    found = {
        entry.problem_id: [(r.index, r.text, r.seed) for r in entry.responses]
        for entry in journal.read(["a", "b"])
    }
    journal.close()
    return found


def test_responses_of_all_chunks_are_merged_in_order_of_index(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "j.jsonl")
    fill(journal)
    journal.close()
    assert contents(tmp_path / "j.jsonl") == {
        "a": [(GREEDY, "x", 6), (0, "p", 7), (1, "q", 8)],
        "b": [(GREEDY, "ü\n", 6), (0, "p", 7), (1, "q", 8)],
    }


@given(cut=st.integers(0, 10_000))
def test_a_cut_anywhere_keeps_exactly_the_committed_chunks(cut: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "j.jsonl"
        journal = Journal(path)
        fill(journal)
        journal.close()
        whole = path.read_bytes()
        commits = [
            i for i, line in enumerate(whole.splitlines(True)) if line.startswith(b'{"chunk')
        ]
        ends = [sum(map(len, whole.splitlines(True)[: i + 1])) for i in commits]
        cut = cut % (len(whole) + 1)
        path.write_bytes(whole[:cut])
        survivors = [
            name for name, end in zip(["greedy/0", "samples/0"], ends, strict=True) if end <= cut
        ]
        journal = Journal(path)
        assert set(journal.committed) == set(survivors)
        for name in ["greedy/0", "samples/0"]:
            if name not in journal.committed:
                index = [GREEDY] if name.startswith("greedy") else [0, 1]
                texts = [["x"], ["ü\n"]] if name.startswith("greedy") else [["p", "q"]] * 2
                journal.append(name, asked("ab", *index), [answers(t) for t in texts])
        journal.close()
        assert path.read_bytes() == whole


def test_a_damaged_line_before_whole_ones_is_an_error_that_names_it(tmp_path: Path) -> None:
    path = tmp_path / "j.jsonl"
    journal = Journal(path)
    fill(journal)
    journal.close()
    lines = path.read_bytes().splitlines(True)
    lines[1] = lines[1][:-5] + b"\n"
    path.write_bytes(b"".join(lines))
    with pytest.raises(UserError, match=r"j\.jsonl, line 2: is damaged"):
        Journal(path)


def test_a_sampler_that_gives_too_few_responses_is_caught(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "j.jsonl")
    with pytest.raises(GapftError, match="gave 1 responses to problem a, expected 2"):
        journal.append("c", asked("a", 0, 1), [answers(["only"])])
    journal.close()


@pytest.mark.parametrize("lost", [0, 1, 3, 4])
def test_a_lost_line_is_an_error_that_names_its_commit(tmp_path: Path, lost: int) -> None:
    """Else an attempt would go missing unseen, and an earlier one count as the final answer."""
    path = tmp_path / "j.jsonl"
    journal = Journal(path)
    fill(journal)
    journal.close()
    lines = path.read_bytes().splitlines(True)
    path.write_bytes(b"".join(lines[:lost] + lines[lost + 1 :]))
    commit = 2 if lost < 2 else 5
    with pytest.raises(UserError, match=f"line {commit}: commits 2 lines, but 1 stand before"):
        Journal(path)
    path.write_bytes(b"".join(lines[:2] + lines[3:]))
    with pytest.raises(UserError, match="line 5: commits 2 lines, but 4 stand before"):
        Journal(path)
