"""The reader that recognises a log reads it: the shipped readers and a plugin's."""

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
from tests.kit.tiny_models import write_byte_llama

ROOT = Path(__file__).parents[2]


@pytest.fixture
def tokenizer(tmp_path: Path) -> Retokenizer:
    """A tokenizer with one token per byte."""
    return Retokenizer(
        SamplerSettings("import", {"pretrained": str(write_byte_llama(tmp_path / "m"))})
    )


@pytest.fixture
def answers_plugin(tmp_path: Path) -> str:
    """The plugin of docs/plugins.md."""
    text = (ROOT / "docs" / "plugins.md").read_text()
    text = text.partition("## A log reader in one file")[2]
    found = re.findall(r"```python[^\n]*\n(.*?)```", text, re.DOTALL)[0]
    (tmp_path / "answers.py").write_text(found)
    return str(tmp_path / "answers.py")


def write_table(path: Path, right: Sequence[str]) -> str:
    """Write a log of the plugin's format: question, gold, answer, right."""
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(("question", "gold", "answer", "right"))
        for row, verdict in enumerate(right):
            writer.writerow((f"{row}+1?", row + 1, f"\\boxed{{{row + 1}}} {path.stem}", verdict))
    return str(path)


def test_compares_plugin_logs(answers_plugin: str, tmp_path: Path) -> None:
    before = write_table(tmp_path / "before.csv", ["yes", "no", "no", "no"])
    after = write_table(tmp_path / "after.csv", ["yes", "yes", "yes", "no"])
    comparison = compare(before, [after], CompareChoice(plugin_files=[answers_plugin]))
    (paired,) = comparison.findings.models.values()
    assert (paired.before, paired.after, paired.gained, paired.lost) == (0.25, 0.75, 2, 0)
    write_comparison(comparison, tmp_path / "out")
    assert "boxed{2} after" in (tmp_path / "out" / "items.csv").read_text()


def test_rejects_log_without_its_plugin(answers_plugin: str, tmp_path: Path) -> None:
    before = write_table(tmp_path / "before.csv", ["yes"])
    with pytest.raises(UserError, match=r"before\.csv, line 1"):
        compare(before, [before], CompareChoice())


def test_rejudges_plugin_logs(answers_plugin: str, tmp_path: Path) -> None:
    """The log's verdicts are compared with the verifier's."""
    before = write_table(tmp_path / "before.csv", ["yes", "no"])
    choice = RejudgeChoice(Rule("boxed_math"), plugin_files=[answers_plugin])
    judged = judge_logs([before], choice, flips := Flips(10))
    assert (judged.responses, flips.right, flips.wrong) == (2, 1, 0)


def test_imports_plugin_logs(answers_plugin: str, tmp_path: Path, tokenizer: Retokenizer) -> None:
    greedy = write_table(tmp_path / "greedy.csv", ["yes", "no", "no"])
    samples = [
        write_table(tmp_path / f"{n}.csv", ["yes", "no", "yes" if n else "no"]) for n in (0, 1)
    ]
    problems = [
        Problem(f"p{row}", f"Q: {row}+1?", "", document={"q": f"{row}+1?"}) for row in range(3)
    ]
    choice = ImportChoice(samples, greedy, on=[("question", "q")])
    gathering = Gathering(choice, problems, "pool", 2, [answers_plugin])
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
def test_names_broken_reader(tmp_path: Path, yielded: str, expected: str) -> None:
    (tmp_path / "a.mine").write_text("?")
    plugin = tmp_path / "mine.py"
    plugin.write_text(
        f"from gapft_harness.api import hookimpl\n\ndef rows(log):\n    {yielded}\n\n@hookimpl\n"
        "def register_log_readers(register):\n"
        "    register('mine', rows, recognises=lambda path: path.suffix == '.mine')\n"
    )
    with pytest.raises(PluginError, match=expected):
        list(read_rows(open_log(tmp_path / "a.mine", [str(plugin)])))


def test_names_plugins_that_claim_same_file(answers_plugin: str, tmp_path: Path) -> None:
    other = tmp_path / "other.py"
    other.write_text(Path(answers_plugin).read_text().replace('"answers"', '"others"'))
    with pytest.raises(UserError, match=r"'answers'.* and by log reader 'others'"):
        open_log(tmp_path / "a.csv", [answers_plugin, str(other)])


#: A line of each shipped format, by the reader's name.
LINES = {
    "lm-eval": {"doc": {"q": 1}, "resps": [["a"]], "metrics": ["acc"], "acc": 1},
    "jsonl": {"id": "q", "text": "a", "passed": True},
}


@pytest.mark.parametrize("name", LINES)
def test_shipped_readers_recognise_their_formats(name: str, tmp_path: Path) -> None:
    right, line = tmp_path / "right", LINES[name]
    right.write_text(json.dumps(line) + "\n")
    wrong = tmp_path / "wrong"
    wrong.write_text(json.dumps({k: 0 if v is True or v == 1 else v for k, v in line.items()}))
    entry = load_plugins().find_log_reader(right)
    assert entry is not None
    assert entry.name == name
    if name == "lm-eval":
        return  # the document contains the number 1 too
    comparison = compare(str(wrong), [str(right)], CompareChoice())
    (paired,) = comparison.findings.models.values()
    assert (paired.before, paired.after) == (0, 1)


def test_rereads_rows_by_position(answers_plugin: str, tmp_path: Path) -> None:
    log = open_log(Path(write_table(tmp_path / "a.csv", ["yes", "no", "yes"])), [answers_plugin])
    rows = list(read_rows(log))
    with open_row_access(log) as row_at:
        again = [row_at(row.line, row.offset) for row in reversed(rows)]
    assert [row.texts for row in again] == [row.texts for row in reversed(rows)]
    assert [row.place for row in again] == [row.place for row in reversed(rows)]


def test_row_counts_passing_responses(tmp_path: Path) -> None:
    log = open_log(tmp_path / "samples_toy_2026-01-01T00-00-00.jsonl")
    row = LogRow.of(log, 1, {"q": 1}, ["a", "b"], passed=[True, False], metrics={"f1": 0.25})
    assert (row.require_number("pass@1"), row.require_number("f1"), row.statuses) == (
        0.5,
        0.25,
        ["pass", "fail"],
    )
    assert row.metrics == ["pass@1", "f1"]


def test_criterion_uses_chosen_metric(tmp_path: Path) -> None:
    """Without a chosen metric, the first one counts."""
    log = open_log(tmp_path / "samples_toy_2026-01-01T00-00-00.jsonl")
    passed = {"loose": [True, True, False], "strict": [False, True, False]}
    row = LogRow.of(log, 1, {"q": 1}, ["a", "b", "c"], passed=passed)
    assert row.metrics == ["loose", "strict"]
    assert row.require_number("strict") == pytest.approx(1 / 3)
    for chosen, leading, used in (
        (None, None, "loose"), (None, "strict", "strict"), ("strict", None, "strict"),
        ("strict", "loose", "strict"), (None, "other", "loose"),
    ):  # fmt: skip
        criterion = Criterion.of(row, chosen, "", leading)
        assert criterion.find_passed(row) == passed[used]
        assert criterion.count_passing(row) == (sum(passed[used]), 3)


def test_ignores_json_files_of_other_programs(tmp_path: Path) -> None:
    log = {"version": 2, "status": "success", "eval": {"task": "sums"}, "samples": []}
    others = {"metrics.json": {"accuracy": 0.5}, "eval.json": {"eval": {}}, "list.json": [1]}
    for name, content in {**others, "2026_sums.json": log}.items():
        (tmp_path / name).write_text(json.dumps(content, indent=2))
    readers = {path.name: load_plugins().find_log_reader(path) for path in tmp_path.iterdir()}
    assert {name for name, reader in readers.items() if reader} == {"2026_sums.json"}
    (tmp_path / "2026_sums.json").unlink()
    with pytest.raises(UserError, match="no log of another kind"):
        compare(str(tmp_path), [str(tmp_path)], CompareChoice())
