"""``compare --verifier``: verdicts computed by hand, laws, real logs, and errors."""

from __future__ import annotations

import csv
import json
import re
import shlex
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gapft_harness.compare.comparison import Comparison
from gapft_harness.compare.options import Rule
from gapft_harness.core.errors import UserError
from tests.compare.command import run_compare
from tests.compare.logs import compare_logs, join_notes, row, write_log
from tests.kit.plugins import write_plugin

ROOT = Path(__file__).parents[2]
STRICT = Rule("option_letter", {"rule": "whole_response"})
EXPLICIT = Rule("option_letter", {"rule": "first_explicit"})


def build_rows(texts: list[list[str]], gold: str = "B", **changes: Any) -> list[dict[str, Any]]:
    return [
        row(number, 0, resps=[responses], target=gold, **changes)
        for number, responses in enumerate(texts)
    ]


def judge(log: Path, rule: Rule, *after: Path, **choice: Any) -> Comparison:
    return compare_logs(log, *after, verifier=rule, **choice)


def read_values(comparison: Comparison) -> list[tuple[float, float]]:
    """Return each document's numbers before and after, in the order of the log before."""
    (after,) = comparison.numbers.after.values()
    columns = comparison.joined.before, comparison.numbers.before, after[0]
    return [(before, now) for _, before, now in sorted(zip(*map(list, columns), strict=True))]


#: Text, and whether whole_response and first_explicit read it as B (docs/verifiers.md).
FORMS = {
    "B": (True, True),
    "(B)": (True, True),
    "The answer is (B)": (False, True),
    "The answer is (C)": (False, False),
    "C": (False, False),
    "I do not know": (False, False),
    "**B**": (False, True),
}


def test_verdicts_of_one_log_match_hand_computation(tmp_path: Path) -> None:
    values = [0, 1, 0, 1]  # the log's values
    texts = ["The answer is (B)", "B", "C", "The answer is (C)"]
    rows = [
        row(number, value, resps=[[text]], target="B")
        for number, (value, text) in enumerate(zip(values, texts, strict=True))
    ]
    log = write_log(tmp_path / "log", rows=rows)
    rule = ("--verifier", "option_letter:rule=first_explicit")
    done = run_compare(log, *rule, "--out", tmp_path / "out")
    assert done.exit_code == 0, done.output
    items = [*csv.DictReader((tmp_path / "out/tables/items.csv").open())]
    assert [(item["doc_id"], item["change"], item["after"]) for item in items] == [
        ("0", "gained", texts[0]),
        ("3", "lost", texts[3]),
    ]
    (model,) = json.loads((tmp_path / "out" / "results.json").read_text())["models"]
    assert (model["before"], model["after"], model["documents"]) == (0.5, 0.5, 4)
    assert (model["gained"], model["lost"], model["p"]) == (1, 1, 1.0)


response_lists = st.lists(st.sampled_from(sorted(FORMS)), min_size=1, max_size=8)


@settings(max_examples=15)
@given(response_lists, st.randoms())
def test_judging_laws_hold(
    tmp_path_factory: pytest.TempPathFactory, texts: list[str], rng: Any
) -> None:
    """A log equals itself by any rule, and the order of rows does not matter."""
    folder = tmp_path_factory.mktemp("laws")
    rows = build_rows([[text] for text in texts])
    log = write_log(folder / "a", rows=rows)
    for number, rule in enumerate((STRICT, EXPLICIT)):
        expected = [float(FORMS[text][number]) for text in texts]
        assert read_values(judge(log, rule, log)) == [(value, value) for value in expected]
        assert [now for _, now in read_values(judge(log, rule))] == expected
    rng.shuffle(rows)
    shuffled = write_log(folder / "b", rows=rows)
    assert read_values(judge(log, EXPLICIT, shuffled)) == read_values(judge(log, EXPLICIT, log))


def test_counts_responses_that_could_not_be_judged(tmp_path: Path) -> None:
    source = "class Late:\n    def verify(self, responses, golds):\n"
    source += "        return [Verdict(text) for text in responses]\n"
    plugin = write_plugin(tmp_path / "late.py", source, verifiers=["'late', Late"])
    rows = build_rows([["pass"], ["timeout"], ["error"], ["fail"]])
    log = write_log(tmp_path / "log", rows=rows)
    judged = judge(log, Rule("late"), plugin_files=[plugin])
    assert [now for _, now in read_values(judged)] == [1, 0, 0, 0]
    assert "2 of 4 responses could not be judged by late" in join_notes(judged)
    assert "could not be judged" not in join_notes(judge(log, STRICT))


def test_math_verifier_reads_missed_answers(tmp_path: Path) -> None:
    """GSM8K's golds are complete solutions, and its strict filter reads the text after ####."""
    texts = ["So the answer is 18.", "#### 18", "I get $\\frac{36}{2}$", "17", "\\boxed{18}"]
    rows = [
        row(number, float("####" in text), resps=[[text]], target="9 * 2 = 18\n#### 18")
        for number, text in enumerate(texts)
    ]
    log = write_log(tmp_path, rows=rows)
    assert read_values(judge(log, Rule("math"))) == [(0, 1), (1, 1), (0, 1), (0, 0), (0, 1)]


def test_gold_option_names_a_field(tmp_path: Path) -> None:
    rows = build_rows([["B"], ["C"]])
    for line in rows:
        line["doc"]["right"] = "C"
    log = write_log(tmp_path, rows=rows)
    assert [now for _, now in read_values(judge(log, STRICT))] == [1, 0]
    assert [now for _, now in read_values(judge(log, STRICT, gold="right"))] == [0, 1]
    with pytest.raises(UserError, match="wrong"):
        judge(log, STRICT, gold="wrong")


def test_documented_commands_judge_real_logs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = (ROOT / "docs" / "comparing.md").read_text()
    blocks = re.findall(r"```bash\n(.*?)```", page, flags=re.DOTALL)
    commands = [line for block in blocks for line in block.splitlines() if "--verifier" in line]
    assert len(commands) == 3
    monkeypatch.chdir(tmp_path)
    for side in ("before", "after"):
        (tmp_path / side).symlink_to(ROOT / "gapft_harness/demo/logs" / side)
    own = (ROOT / "docs" / "verifiers.md").read_text()
    (plugin,) = re.findall(r"```python title=exact.py\n(.*?)```", own, flags=re.DOTALL)
    (tmp_path / "exact.py").write_text(plugin)
    for command in commands:
        done = run_compare(*shlex.split(command)[2:])
        assert done.exit_code == 0, (command, done.output)
    (log,) = (tmp_path / "before").glob("samples_*.jsonl")
    rows = [json.loads(line) for line in log.read_text().splitlines()]
    same = judge(log, Rule("boxed_math"))  # the task's own verifier
    assert read_values(same) == [(line["pass@1"], line["pass@1"]) for line in rows]
    assert all(now >= before for before, now in read_values(judge(log, Rule("math"))))


def test_metric_option_overrides_verdicts(tmp_path: Path) -> None:
    rows = build_rows([["B"], ["B"]], exact_match=0, verdicts=[{"status": "pass", "reason": ""}])
    log = write_log(tmp_path / "log", rows=rows)
    assert read_values(judge(log, STRICT)) == [(1, 1), (1, 1)]
    assert read_values(judge(log, STRICT, metric="exact_match")) == [(0, 1), (0, 1)]
