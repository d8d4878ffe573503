"""A log is read by the reader that recognises it: what ships, and a plugin's of ten lines."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Sequence
from pathlib import Path

import pytest

from gapft_harness.compare.choice import CompareChoice
from gapft_harness.compare.comparison import compare
from gapft_harness.compare.document import write_comparison as write_comparison
from gapft_harness.core.errors import PluginError, UserError
from gapft_harness.core.records import GREEDY, Problem
from gapft_harness.hooks.manager import load_plugins
from gapft_harness.hooks.protocols import SamplerSettings
from gapft_harness.importing.gathering import Gathering
from gapft_harness.importing.rows import ImportChoice
from gapft_harness.lm_eval_bridge.samplers.retokenizer import Retokenizer
from gapft_harness.rejudge.choice import RejudgeChoice, Rule
from gapft_harness.rejudge.flips import Flips
from gapft_harness.rejudge.logs import judge_logs
from gapft_harness.stages.generation.stored_files import DraftResponses
from gapft_harness.verdicts.log_files import open_log
from gapft_harness.verdicts.sample_logs import Criterion, LogRow, open_row_access, read_rows
from tests.tiny_models import byte_llama

ROOT = Path(__file__).parents[2]


@pytest.fixture
def tokenizer(tmp_path: Path) -> Retokenizer:
    """A byte is one token."""
    return Retokenizer(SamplerSettings("import", {"pretrained": str(byte_llama(tmp_path / "m"))}))


@pytest.fixture
def answers(tmp_path: Path) -> str:
    """The plugin of docs/plugins.md, as it stands there."""
    text = (ROOT / "docs" / "plugins.md").read_text()
    text = text.partition("## A log reader in one file")[2]
    found = re.findall(r"```python[^\n]*\n(.*?)```", text, re.DOTALL)[0]
    (tmp_path / "answers.py").write_text(found)
    return str(tmp_path / "answers.py")


def table(path: Path, right: Sequence[str]) -> str:
    """A log of the plugin's: question, answer, right."""
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(("question", "gold", "answer", "right"))
        for row, said in enumerate(right):
            writer.writerow((f"{row}+1?", row + 1, f"\\boxed{{{row + 1}}} {path.stem}", said))
    return str(path)


def test_a_plugins_logs_are_compared(answers: str, tmp_path: Path) -> None:
    before = table(tmp_path / "before.csv", ["yes", "no", "no", "no"])
    after = table(tmp_path / "after.csv", ["yes", "yes", "yes", "no"])
    found = compare(before, [after], CompareChoice(plugin_files=[answers]))
    (paired,) = found.findings.models.values()
    assert (paired.before, paired.after, paired.gained, paired.lost) == (0.25, 0.75, 2, 0)
    write_comparison(found, tmp_path / "out")
    assert "boxed{2} after" in (tmp_path / "out" / "items.csv").read_text()


def test_without_the_plugin_it_is_no_log(answers: str, tmp_path: Path) -> None:
    before = table(tmp_path / "before.csv", ["yes"])
    with pytest.raises(UserError, match=r"before\.csv, line 1"):
        compare(before, [before], CompareChoice())


def test_a_plugins_logs_are_judged_again(answers: str, tmp_path: Path) -> None:
    """The verdicts that the log has are held against the verifier's."""
    before = table(tmp_path / "before.csv", ["yes", "no"])
    choice = RejudgeChoice(Rule("boxed_math"), plugin_files=[answers])
    judged = judge_logs([before], choice, flips := Flips(10))
    assert (judged.responses, flips.right, flips.wrong) == (2, 1, 0)


def test_a_plugins_logs_are_imported(answers: str, tmp_path: Path, tokenizer: Retokenizer) -> None:
    greedy = table(tmp_path / "greedy.csv", ["yes", "no", "no"])
    samples = [table(tmp_path / f"{n}.csv", ["yes", "no", "yes" if n else "no"]) for n in (0, 1)]
    problems = [
        Problem(f"p{row}", f"Q: {row}+1?", "", document={"q": f"{row}+1?"}) for row in range(3)
    ]
    choice = ImportChoice(samples, greedy, on=[("question", "q")])
    gathering = Gathering(choice, problems, "pool", 2, [answers])
    responses = DraftResponses()
    gathering.gather(responses.add, tokenizer, lambda done: None)
    passed = {
        (entry.problem_id, index): verdict.passed
        for entry in responses.read([problem.id for problem in problems])
        for index, verdict in entry.verdicts.items()
    }
    assert set(gathering.formats.values()) == {"answers"}
    assert gathering.verdict_sources.keys() == {"its verdicts"}
    assert passed == {
        ("p0", GREEDY): True, ("p0", 0): True, ("p0", 1): True,
        ("p1", GREEDY): False, ("p1", 0): False, ("p1", 1): False,
        ("p2", GREEDY): False, ("p2", 0): False, ("p2", 1): True,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("yielded", "expected"),
    [
        (
            "yield {'doc': 1}",
            r"log reader 'mine' \(plugin .*mine\.py.* yielded {'doc': 1}; expected",
        ),
        ("yield 1 / 0", r"log reader 'mine' .* failed: .*zero.*mine\.py, line 4"),
    ],
)
def test_a_broken_reader_is_named(tmp_path: Path, yielded: str, expected: str) -> None:
    (tmp_path / "a.mine").write_text("?")
    plugin = tmp_path / "mine.py"
    plugin.write_text(
        f"from gapft_harness.api import hookimpl\n\ndef rows(log):\n    {yielded}\n\n@hookimpl\n"
        "def register_log_readers(register):\n"
        "    register('mine', rows, recognises=lambda path: path.suffix == '.mine')\n"
    )
    with pytest.raises(PluginError, match=expected):
        list(read_rows(open_log(tmp_path / "a.mine", [str(plugin)])))


def test_two_plugins_that_recognise_a_file_are_named(answers: str, tmp_path: Path) -> None:
    other = tmp_path / "other.py"
    other.write_text(Path(answers).read_text().replace('"answers"', '"others"'))
    with pytest.raises(UserError, match=r"'answers'.* and by log reader 'others'"):
        open_log(tmp_path / "a.csv", [answers, str(other)])


#: A line of each format that ships, and its reader.
LINES = {
    "lm-eval": {"doc": {"q": 1}, "resps": [["a"]], "metrics": ["acc"], "acc": 1},
    "nemo-skills": {"problem": "q", "generation": "a", "is_correct": True, "expected_answer": "a"},
    "jsonl": {"id": "q", "text": "a", "passed": True},
}


@pytest.mark.parametrize("name", LINES)
def test_what_ships_recognises_its_own_and_is_compared(name: str, tmp_path: Path) -> None:
    right, line = tmp_path / "right", LINES[name]
    right.write_text(json.dumps(line) + "\n")
    wrong = tmp_path / "wrong"
    wrong.write_text(json.dumps({k: 0 if v is True or v == 1 else v for k, v in line.items()}))
    entry = load_plugins().find_log_reader(right)
    assert entry is not None
    assert entry.name == name
    if name == "lm-eval":
        return  # its number 1 is also its document
    found = compare(str(wrong), [str(right)], CompareChoice())
    (paired,) = found.findings.models.values()
    assert (paired.before, paired.after) == (0, 1)


def test_rows_of_any_reader_are_found_again(answers: str, tmp_path: Path) -> None:
    log = open_log(Path(table(tmp_path / "a.csv", ["yes", "no", "yes"])), [answers])
    rows = list(read_rows(log))
    with open_row_access(log) as row_at:
        again = [row_at(row.line, row.offset) for row in reversed(rows)]
    assert [row.texts for row in again] == [row.texts for row in reversed(rows)]
    assert [row.place for row in again] == [row.place for row in reversed(rows)]


def test_a_row_of_several_responses_tells_how_many_passed(tmp_path: Path) -> None:
    log = open_log(tmp_path / "samples_toy_2026-01-01T00-00-00.jsonl")
    row = LogRow.of(log, 1, {"q": 1}, ["a", "b"], passed=[True, False], metrics={"f1": 0.25})
    assert (row.require_number("pass@1"), row.require_number("f1"), row.statuses) == (
        0.5,
        0.25,
        ["pass", "fail"],
    )
    assert row.metrics == ["pass@1", "f1"]


def test_verdicts_by_metric_speak_of_the_one_that_is_chosen(tmp_path: Path) -> None:
    """Where none is chosen, of the first."""
    log = open_log(tmp_path / "samples_toy_2026-01-01T00-00-00.jsonl")
    passed = {"loose": [True, True, False], "strict": [False, True, False]}
    row = LogRow.of(log, 1, {"q": 1}, ["a", "b", "c"], passed=passed)
    assert row.metrics == ["loose", "strict"]
    assert row.require_number("strict") == pytest.approx(1 / 3)
    for chosen, leading, counts in (
        (None, None, "loose"), (None, "strict", "strict"), ("strict", None, "strict"),
        ("strict", "loose", "strict"), (None, "other", "loose"),
    ):  # fmt: skip
        criterion = Criterion.of(row, chosen, "", leading)
        assert criterion.find_passed(row) == passed[counts]
        assert criterion.count_passing(row) == (sum(passed[counts]), 3)


def test_in_a_folder_only_those_json_files_that_inspect_wrote_are_logs(tmp_path: Path) -> None:
    log = {"version": 2, "status": "success", "eval": {"task": "sums"}, "samples": []}
    others = {"metrics.json": {"accuracy": 0.5}, "eval.json": {"eval": {}}, "list.json": [1]}
    for name, content in {**others, "2026_sums.json": log}.items():
        (tmp_path / name).write_text(json.dumps(content, indent=2))
    readers = {path.name: load_plugins().find_log_reader(path) for path in tmp_path.iterdir()}
    assert {name for name, reader in readers.items() if reader} == {"2026_sums.json"}
    (tmp_path / "2026_sums.json").unlink()
    with pytest.raises(UserError, match="no log of another kind"):
        compare(str(tmp_path), [str(tmp_path)], CompareChoice())
