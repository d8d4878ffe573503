"""``gapft rejudge`` of sample logs: flips computed by hand, laws, real logs, and errors."""

from __future__ import annotations

import csv
import json
import random
import re
import shlex
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from typer.testing import CliRunner, Result

from gapft_harness.cli.main import app
from gapft_harness.core.errors import UserError
from gapft_harness.rejudge import judge as judging_module
from gapft_harness.rejudge.choice import RejudgeChoice, Rule
from gapft_harness.rejudge.flips import Flips
from gapft_harness.rejudge.logs import LogsJudged, judge_logs
from tests.compare.logs import row, write_log

ROOT = Path(__file__).parents[2]
STRICT = Rule("option_letter", {"rule": "whole_response"})
EXPLICIT = Rule("option_letter", {"rule": "first_explicit"})


def run_rejudge(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["rejudge", *map(str, arguments)], env={"COLUMNS": "160"})


def build_rows(texts: list[list[str]], gold: str = "B", **changes: Any) -> list[dict[str, Any]]:
    return [
        row(number, 0, resps=[responses], target=gold, **changes)
        for number, responses in enumerate(texts)
    ]


def rejudge(log: Path, rule: Rule, earlier_rule: Rule | None = None) -> LogsJudged:
    return judge_logs([str(log)], RejudgeChoice(rule, earlier_rule), Flips(10**6))


def list_flips(judged: LogsJudged) -> set[tuple[str, int, bool]]:
    return {(flip.document, flip.index, flip.is_right) for flip in judged.flips.kept}


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


def test_flips_match_hand_computation(tmp_path: Path) -> None:
    values = [0, 1, 0, 1]  # the log's values
    texts = ["The answer is (B)", "B", "C", "The answer is (C)"]
    rows = [
        row(number, value, resps=[[text]], filtered_resps=[text[:3]], target="B")
        for number, (value, text) in enumerate(zip(values, texts, strict=True))
    ]
    log = write_log(tmp_path / "log", rows=rows)
    rule = ("--verifier", "option_letter", "--param", "rule=first_explicit")
    done = run_rejudge(log, *rule, "--out", tmp_path / "out")
    assert done.exit_code == 0, done.output
    assert isinstance(run_rejudge(log, *rule, "--out", tmp_path / "out").exception, UserError)
    flips = list(csv.DictReader((tmp_path / "out" / "flips.csv").open()))
    assert [
        (f["document"], f["flip"], f["was_answer"], f["now_answer"], f["text"]) for f in flips
    ] == [
        ("0", "right now", "The", "B", texts[0]),
        ("3", "wrong now", "The", "C", texts[3]),
    ]
    assert [flip["where"] for flip in flips] == [f"{log}, line 1", f"{log}, line 4"]
    results = json.loads((tmp_path / "out" / "results.json").read_text())
    assert (results["before"], results["after"], results["n"]) == (0.5, 0.5, 4)
    assert (results["right_now"], results["wrong_now"], results["p"]) == (1, 1, 1.0)
    assert results["verdicts"] == {"fail": 2, "pass": 2}
    assert "The answer is (B)" in done.output
    (line,) = csv.DictReader((tmp_path / "out" / "rejudged.csv").open())
    assert float(line["after"]) == 0.5


def test_rejudges_several_responses(tmp_path: Path) -> None:
    log = write_log(
        tmp_path, rows=build_rows([["B", "The answer is (B)", "C"], ["C", "**B**", "(B)"]])
    )
    results = rejudge(log, EXPLICIT, STRICT)
    assert list_flips(results) == {("0", 1, True), ("1", 1, True)}
    assert results.before.tolist() == [1 / 3, 1 / 3]
    assert results.after.tolist() == [2 / 3, 2 / 3]
    assert isinstance(run_rejudge(log, "--verifier", "option_letter").exception, UserError)
    verdicts = [{"status": s, "reason": ""} for s in ("pass", "pass", "fail")]
    log = write_log(tmp_path, rows=build_rows([["B", "C", "B"]], verdicts=verdicts))
    assert list_flips(rejudge(log, STRICT)) == {("0", 1, False), ("0", 2, True)}


response_lists = st.lists(
    st.lists(st.sampled_from(sorted(FORMS)), min_size=1, max_size=3), min_size=1, max_size=8
)


@settings(max_examples=25)
@given(response_lists, st.randoms())
def test_rejudge_laws_hold(
    tmp_path_factory: pytest.TempPathFactory, texts: list[list[str]], rng: Any
) -> None:
    """The same rule flips nothing, A to B mirrors B to A, and the order of rows does not matter."""
    folder = tmp_path_factory.mktemp("laws")
    rows = build_rows(texts)
    log = write_log(folder / "a", rows=rows)
    for rule in (STRICT, EXPLICIT):
        assert list_flips(rejudge(log, rule, rule)) == set()
    forward, backward = rejudge(log, EXPLICIT, STRICT), rejudge(log, STRICT, EXPLICIT)
    expected = {
        (str(number), index, True)
        for number, responses in enumerate(texts)
        for index, text in enumerate(responses)
        if FORMS[text] == (False, True)
    }
    assert list_flips(forward) == expected
    assert list_flips(backward) == {(document, index, False) for document, index, _ in expected}
    assert forward.before == backward.after
    shares = [sum(FORMS[text][1] for text in responses) / len(responses) for responses in texts]
    assert forward.after.tolist() == shares
    rng.shuffle(rows)
    assert list_flips(rejudge(write_log(folder / "b", rows=rows), EXPLICIT, STRICT)) == expected


def test_worker_processes_give_equal_verdicts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = random.Random(3)
    texts = [[f"{rng.choice(sorted(FORMS))}{' ' * rng.randrange(9)}"] for _ in range(5000)]
    log = write_log(tmp_path, rows=build_rows(texts))
    by_processes = rejudge(log, EXPLICIT, STRICT)
    monkeypatch.setattr(judging_module, "_MIN_POOLED", 10**9)
    in_process = rejudge(log, EXPLICIT, STRICT)
    assert by_processes.flips.kept == in_process.flips.kept
    assert len(in_process.flips.kept) > 1000
    assert by_processes.after == in_process.after
    assert in_process.after.tolist() == [float(FORMS[text.rstrip()][1]) for (text,) in texts]


HANGS = """
import os, time

time.sleep(3)  # longer than a batch may take: what a process needs to start is nobody's time-out
from gapft_harness.api import Verdict, hookimpl

class Odd:
    def verify(self, responses, golds):
        for text in responses:
            if text == "hang":
                time.sleep(3600)
            if text == "die":
                os._exit(3)
        return [Verdict("pass") for _ in responses]

@hookimpl
def register_verifiers(register):
    register("odd", Odd)
"""


def test_bad_response_fails_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(judging_module, "_MIN_POOLED", 2)
    monkeypatch.setattr(judging_module, "_TIMEOUT_S", 2.0)
    (tmp_path / "odd.py").write_text(HANGS)
    log = write_log(tmp_path, rows=build_rows([["a"], ["hang"], ["b"], ["die"], ["c"]]))
    judged = judge_logs(
        [str(log)], RejudgeChoice(Rule("odd"), plugin_files=[str(tmp_path / "odd.py")]), Flips(9)
    )
    assert judged.reasons.statuses == {"pass": 3, "timeout": 1, "error": 1}
    assert judged.after.tolist() == [1, 0, 1, 0, 1]


def test_math_verifier_reads_missed_answers(tmp_path: Path) -> None:
    """GSM8K's golds are complete solutions, and its strict filter reads the text after ####."""
    texts = ["So the answer is 18.", "#### 18", "I get $\\frac{36}{2}$", "17", "\\boxed{18}"]
    rows = [
        row(
            number, float("####" in text), resps=[[text]], target="9 * 2 = 18\n#### 18",
            filtered_resps=["[invalid]"],
        )
        for number, text in enumerate(texts)
    ]  # fmt: skip
    log = write_log(tmp_path, rows=rows)
    results = rejudge(log, Rule("math"))
    assert list_flips(results) == {("0", 0, True), ("2", 0, True), ("4", 0, True)}
    assert [flip.now_answer for flip in results.flips.kept] == ["18", "\\frac{36}{2}", "18"]
    assert [flip.was_answer for flip in results.flips.kept] == ["[invalid]"] * 3


def test_documented_commands_rejudge_real_logs(
    logs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = (ROOT / "docs" / "comparing.md").read_text()
    blocks = re.findall(r"```bash\n(.*?)```", page, flags=re.DOTALL)
    commands = [line for block in blocks for line in block.splitlines() if "rejudge before" in line]
    assert len(commands) == 3
    monkeypatch.chdir(tmp_path)
    (tmp_path / "before").symlink_to(logs / "before")
    own = (ROOT / "docs" / "verifiers.md").read_text()
    (plugin,) = re.findall(r"```python title=exact.py\n(.*?)```", own, flags=re.DOTALL)
    (tmp_path / "exact.py").write_text(plugin)
    for command in commands:
        done = run_rejudge(*shlex.split(command)[2:])
        assert done.exit_code == 0, done.output
    (log,) = (logs / "before").rglob("samples_gapft_demo_2*.jsonl")
    rows = [json.loads(line) for line in log.read_text().splitlines()]
    results = json.loads((tmp_path / "again" / "results.json").read_text())
    assert results["n"] == len(rows) == 16
    assert (
        results["before"] == sum(line["pass@1"] for line in rows) / 16
    )  # the log has verdicts of boxed_math
    assert results["after"] >= results["before"]  # math passes whatever boxed_math passes
    assert results["p"] == pytest.approx(
        stats.binomtest(results["gained"], results["gained"] + results["lost"]).pvalue
        if results["gained"] + results["lost"]
        else 1.0
    )
    same = run_rejudge(log, "--verifier", "boxed_math")  # the task's own verifier, so nothing flips
    assert "0 changed from wrong to right, 0 from right to wrong" in " ".join(same.output.split())
    (several,) = (logs / "before").rglob("samples_gapft_demo_passk_2*.jsonl")
    same = rejudge(several, Rule("boxed_math"))
    assert (same.responses, same.flips.right, same.flips.wrong) == (16 * 8, 0, 0)
    (options,) = (logs / "before").rglob("samples_two_options_2*.jsonl")
    done = run_rejudge(options, "--verifier", "math")
    assert isinstance(done.exception, UserError)


HOSTILE = "\x1b[2J\x1b]0;owned\x07 [red]x[/] <script>alert(1)</script> \u202eevil | `a` \ud800 B"


def test_escapes_hostile_responses(tmp_path: Path) -> None:
    log = write_log(tmp_path / "log", rows=build_rows([[HOSTILE]], exact_match=1))
    done = run_rejudge(log, "--verifier", "option_letter", "--out", tmp_path / "out")
    assert done.exit_code == 0, done.output
    for text in (done.output, (tmp_path / "out" / "rejudged.md").read_text()):
        assert "\x1b" not in text
        assert "\u202e" not in text
    page = (tmp_path / "out" / "rejudged.md").read_text()
    assert "<script>" not in page.replace("\\<script>", "")
    html = (tmp_path / "out" / "rejudged.html").read_text()
    assert "&lt;script&gt;alert" in html
    assert "<script" not in html.partition("</head>")[2]
    assert "results.json and tables/" not in html
    (flip,) = csv.DictReader((tmp_path / "out" / "flips.csv").open(newline=""))
    assert flip["text"] == HOSTILE.replace("\ud800", "\ufffd")


def test_repeated_documents_form_one_unit(tmp_path: Path) -> None:
    """A second log of the same documents does not narrow the interval."""
    rows = build_rows([["B" if number < 5 else "C"] for number in range(20)], exact_match=0)
    logs = [str(write_log(tmp_path / name, rows=rows)) for name in "ab"]
    (once,) = (
        judge_logs(logs[:1], RejudgeChoice(STRICT), Flips(9)).compute_findings().models.values()
    )
    both = judge_logs(logs, RejudgeChoice(STRICT), Flips(9))
    (twice,) = both.compute_findings().models.values()
    assert (once.items, once.units, once.test, once.estimate.p) == (20, 20, "mcnemar", 0.0625)
    assert (twice.items, twice.units, twice.test) == (40, 20, "sign_flip")
    assert twice.estimate.p == pytest.approx(0.0625, abs=0.01)
    assert once.estimate
    assert twice.estimate
    width = once.estimate.high - once.estimate.low
    assert twice.estimate.high - twice.estimate.low == pytest.approx(width, abs=0.06)
    for groups in both.compute_findings().groups.values():
        assert [(group.units, group.test, group.estimate.p) for group in groups.values()] == [
            (20, "mcnemar", 0.0625)
        ]
    done = run_rejudge(*logs, "--verifier", "option_letter", "--param", "rule=whole_response")
    assert "40 responses to 20 documents in 2 logs" in " ".join(done.output.split())


def test_reports_errors_of_earlier_rule(tmp_path: Path) -> None:
    (tmp_path / "odd.py").write_text(
        "from gapft_harness.api import Verdict, hookimpl\n"
        "class Odd:\n"
        "    def verify(self, responses, golds):\n"
        "        return [Verdict('timeout', 'too slow') for _ in responses]\n"
        "@hookimpl\n"
        "def register_verifiers(register):\n"
        "    register('odd', Odd)\n"
    )
    log = write_log(tmp_path / "log", rows=build_rows([["B"], ["B"]]))
    done = run_rejudge(
        log, "--verifier", "option_letter", "--was", "odd", "--plugin", tmp_path / "odd.py",
        "--out", tmp_path / "out",
    )  # fmt: skip
    assert done.exit_code == 0, done.output
    results = json.loads((tmp_path / "out" / "results.json").read_text())
    assert (results["verdicts"], results["was_verdicts"]) == ({"pass": 2}, {"timeout": 2})


def test_metric_option_overrides_verdicts(tmp_path: Path) -> None:
    rows = build_rows([["B"], ["B"]], exact_match=0, verdicts=[{"status": "pass", "reason": ""}])
    log = write_log(tmp_path / "log", rows=rows)
    rule = ("--verifier", "option_letter", "--param", "rule=whole_response")
    by_verdicts = " ".join(run_rejudge(log, *rule).output.split())
    assert "earlier verdicts: the log's verdicts; --metric: exact_match" in by_verdicts
    assert "0 changed from wrong to right" in by_verdicts
    by_metric = " ".join(run_rejudge(log, *rule, "--metric", "exact_match").output.split())
    assert "earlier verdicts: exact_match of the log" in by_metric
    assert "2 changed from wrong to right" in by_metric


def test_task_metric_reads_include_path(tmp_path: Path) -> None:
    folder = tmp_path / "tasks"
    folder.mkdir()
    data = folder / "test.jsonl"
    data.write_text('{"question": "6 * 7?", "answer": "42"}\n')
    (folder / "mine.yaml").write_text(
        "task: mine\ndataset_path: json\n"
        f"dataset_kwargs: {{data_files: {{test: {data}}}}}\n"
        "test_split: test\noutput_type: generate_until\n"
        'doc_to_text: "{{question}}"\ndoc_to_target: "{{answer}}"\n'
        "metric_list: [{metric: exact_match}]\n"
    )
    rows = [
        row(i, 0, doc={"question": f"{i}?", "answer": "42"}, resps=[[text]], filtered_resps=[text])
        for i, text in enumerate(("42", "7"))
    ]
    log = write_log(tmp_path / "logs", rows=rows, task="mine")
    words = ["rejudge", str(log), "--verifier", "task_metric", "--param", "task=mine"]
    assert isinstance(CliRunner().invoke(app, words).exception, UserError)
    done = CliRunner().invoke(app, [*words, "--include-path", str(folder)])
    assert done.exit_code == 0, (done.output, done.exception)
    assert "50.0%" in done.output
