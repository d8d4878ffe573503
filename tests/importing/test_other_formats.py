"""Sample logs of lm_eval and NeMo-Skills' output: greedy and samples in files of their own."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gapft_harness.core.errors import UserError
from gapft_harness.importing.job import seal_states
from gapft_harness.importing.nemo_skills import read_nemo_skills
from gapft_harness.importing.rows import ImportChoice
from gapft_harness.run_directory.tables import read_judged
from tests.importing.made import Line, imported, states_of, write
from tests.recording_run import Letters, letters

#: Greedy, sample 0, sample 1, sample 2: G, S by the second sample, U.
VERDICTS = [[1, 0, 1, 0], [0, 0, 1, 0], [0, 0, 0, 0]]
STATES = {"pool0": "G", "pool1": "S", "pool2": "U"}


@pytest.fixture
def made(tmp_path: Path) -> Letters:
    return letters(tmp_path, pool=3, audit=3)


def documents(made: Letters) -> list[Line]:
    return [json.loads(line) for line in (made.folder / "tasks/pool.jsonl").open()]


def logged(document: Line, texts: list[str], **keys: Any) -> Line:
    """A row as lm_eval logs it; its number is of no use."""
    return {
        "doc_id": 7, "doc": document, "resps": [texts], "filtered_resps": texts, "filter": "none",
        "metrics": [key for key in keys if key != "verdicts"], **keys,
    }  # fmt: skip


def said(column: int, row: int) -> str:
    return f"{column} of {row}"


def greedy_log(made: Letters) -> list[Line]:
    found = [
        logged(doc, [said(0, row)], exact_match=float(VERDICTS[row][0]))
        for row, doc in enumerate(documents(made))
    ]
    other = [{**row, "filter": "flexible", "exact_match": 1.0} for row in found]
    return [row for pair in zip(reversed(found), other, strict=True) for row in pair]


def samples_log(made: Letters) -> list[Line]:
    return [
        logged(
            doc,
            [said(column, row) for column in (1, 2, 3)],
            verdicts=[{"status": "pass" if v else "fail", "reason": ""} for v in VERDICTS[row][1:]],
            **{"pass@1": sum(VERDICTS[row][1:]) / 3},
        )
        for row, doc in enumerate(documents(made))
    ]


def one_log_a_sample(made: Letters) -> list[list[Line]]:
    return [
        [
            logged(doc, [said(column, row)], exact_match=VERDICTS[row][column])
            for row, doc in enumerate(documents(made))
        ]
        for column in (1, 2, 3)
    ]


@pytest.mark.parametrize("repeats", [True, False])
def test_a_greedy_log_and_logs_of_samples(made: Letters, model: Path, repeats: bool) -> None:
    """K responses a row with verdicts, or a log for each sample, in the order of the command."""
    greedy = write(made.folder / "greedy.jsonl", greedy_log(made))
    logs = [samples_log(made)] if repeats else one_log_a_sample(made)
    files = [write(made.folder / f"{i}.jsonl", log) for i, log in enumerate(logs)]
    run = imported(made, model, "run", files, greedy=greedy, k=3)
    seal_states(run.path, "pool", made.plugins)
    assert states_of(run) == STATES
    for problem_id, judged in read_judged(run.path / "pool/responses.parquet"):
        row = int(problem_id.removeprefix("pool").partition("-")[0])
        assert [each.response.text for each in judged] == [said(c, row) for c in range(4)]
    facts = run.manifest()["imported"]["pool"]
    assert {of["format"] for of in facts["files"]} == {"lm-eval"}
    assert [of["holds"] for of in facts["files"]] == ["greedy", *["samples"] * len(files)]


def test_a_log_that_does_not_say_which_passed_is_refused(made: Letters, model: Path) -> None:
    greedy = write(made.folder / "greedy.jsonl", greedy_log(made))
    rows = samples_log(made)
    for row in rows:
        del row["verdicts"]
    file = write(made.folder / "samples.jsonl", rows)
    with pytest.raises(
        UserError, match=r"line 1: 3 responses, and pass@1 of 0\.333 does not say which"
    ):
        imported(made, model, "run", [file], greedy=greedy, k=3)
    rows[0]["pass@1"] = rows[1]["pass@1"] = 1.0
    write(made.folder / "samples.jsonl", rows)
    run = imported(made, model, "all", [file], greedy=greedy, k=3)
    seal_states(run.path, "pool", made.plugins)
    assert states_of(run) == STATES, "all of the first two problems' samples, and none of the last"
    counts = {
        problem_id.partition("-")[0]: sum(each.verdict.passed for each in judged[1:])
        for problem_id, judged in read_judged(run.path / "pool/responses.parquet")
    }
    assert counts == {"pool0": 3, "pool1": 3, "pool2": 0}


def test_logs_are_refused_by_name(made: Letters, model: Path) -> None:
    """No greedy log, several responses in it, one log twice, a filter or metric that is not."""
    greedy = write(made.folder / "greedy.jsonl", greedy_log(made))
    file = write(made.folder / "samples.jsonl", samples_log(made))
    half = write(made.folder / "half.jsonl", [{**greedy_log(made)[0], "exact_match": 0.4}])
    copy = write(made.folder / "copy.jsonl", samples_log(made))
    beside = f"{made.folder}/tasks/../samples.jsonl"
    few = write(made.folder / "few.jsonl", samples_log(made)[:2])
    for files, choice, message in (
        ([file], {}, f"{file}: found no greedy response"),
        ([file], {"greedy": file}, "given twice"),
        ([file, beside], {"greedy": greedy}, f"{beside}: the file is given twice"),
        ([file, copy], {"greedy": greedy}, f"{copy}: has the same bytes as {file}"),
        ([file], {"greedy": copy}, f"{file}: has the same bytes as {copy}"),
        ([greedy], {"greedy": file}, f"{file}, line 1: found 3 responses to one document"),
        ([file], {"greedy": half}, f"{half}, line 1: exact_match is 0.4"),
        ([few], {"greedy": greedy}, f"{few}: no sample for 1 of 3 problems"),
        ([file], {"greedy": greedy, "filter": "strict"}, "no row under filter 'strict'"),
        ([file], {"greedy": greedy, "metric": "acc"}, f"{greedy}, line 1: no metric 'acc'"),
        (
            [write(made.folder / "p.jsonl", [{"id": "x", "text": "x"}]), file],
            {"greedy": greedy},
            "plain JSON lines together with another format",
        ),
    ):
        with pytest.raises(UserError) as refused:
            imported(made, model, "run", files, k=3, **choice)  # type: ignore[arg-type]
        assert message in str(refused.value)


def test_greedy_and_samples_are_judged_alike(made: Letters, model: Path) -> None:
    """By one filter and one metric, or a greedy response could fail whose equal samples pass."""
    rows, logs = greedy_log(made), one_log_a_sample(made)
    swapped = write(made.folder / "g.jsonl", [rows[i ^ 1] for i in range(len(rows))])
    files = [write(made.folder / f"{i}.jsonl", log) for i, log in enumerate(logs)]
    with pytest.raises(UserError) as refused:
        imported(made, model, "run", files, greedy=swapped, k=3)
    assert str(refused.value).startswith(
        f"{files[0]}, line 1: its verdict comes from filter 'none', but that of {swapped}, line 1 "
        "from 'flexible'"
    )
    run = imported(made, model, "run", files, greedy=swapped, k=3, filter="none")
    seal_states(run.path, "pool", made.plugins)
    assert states_of(run) == STATES
    named = [{**row, "acc": 1.0, "metrics": ["acc", "exact_match"]} for row in rows]
    greedy = write(made.folder / "g.jsonl", named)
    with pytest.raises(UserError, match=r"from metric 'exact_match', .* from 'acc'.*--metric NAME"):
        imported(made, model, "metrics", files, greedy=greedy, k=3)
    imported(made, model, "metrics", files, greedy=greedy, k=3, metric="exact_match")


def nemo(made: Letters, column: int, **keys: Any) -> list[Line]:
    """A file as NeMo-Skills writes it: the problem's record with what was generated beside it."""
    return [
        {
            "problem": doc["question"], "expected_answer": doc["answer"],
            "generation": said(column, row), "predicted_answer": "a", "num_generated_tokens": 4,
            "symbolic_correct": bool(VERDICTS[row][column]), **keys,
        }
        for row, doc in reversed([*enumerate(documents(made))])
    ]  # fmt: skip


def test_output_of_nemo_skills(made: Letters, model: Path) -> None:
    files = [write(made.folder / f"output-rs{c}.jsonl", nemo(made, c + 1)) for c in range(3)]
    greedy = write(made.folder / "output.jsonl", nemo(made, 0, finish_reason="stop"))
    with pytest.raises(UserError, match=r"--on ROW_FIELD=TASK_FIELD: .* no field 'problem'"):
        imported(made, model, "run", files, greedy=greedy, k=3)
    on = [("problem", "question")]
    run = imported(made, model, "run", files, greedy=greedy, k=3, on=on)
    seal_states(run.path, "pool", made.plugins)
    assert states_of(run) == STATES
    assert run.manifest()["finish_reasons"]["pool"] == {"stop": 3, "unknown": 9}
    judged = [[*judged_by_a_model(nemo(made, column))] for column in range(4)]
    greedy = write(made.folder / "judged.jsonl", judged[0])
    with pytest.raises(UserError, match="symbolic_correct and judgement, which may differ"):
        imported(made, model, "both", files, greedy=greedy, k=3, on=on)
    for row in [row for rows in judged for row in rows]:
        del row["symbolic_correct"]
    write(made.folder / "judged.jsonl", judged[0])
    with pytest.raises(UserError, match=r"from field 'symbolic_correct', .* from 'judgement'"):
        imported(made, model, "both", files, greedy=greedy, k=3, on=on)
    for file, rows in zip(files, judged[1:], strict=True):
        write(Path(file), rows)
    run = imported(made, model, "judged", files, greedy=greedy, k=3, on=on)
    seal_states(run.path, "pool", made.plugins)
    assert states_of(run) == STATES
    with pytest.raises(UserError, match="remove --filter"):
        imported(made, model, "filter", files, greedy=greedy, k=3, on=on, filter="none")


def judged_by_a_model(rows: list[Line]) -> Iterator[Line]:
    for row in rows:
        yield {
            **row,
            "judgement": f"Reasons. Judgement: {'Yes' if row['symbolic_correct'] else 'No'}",
        }


@pytest.mark.parametrize(
    ("said", "status"),
    [
        ("Reasoning: yes, it is.\nJudgement: No", "fail"),
        ("Judgement: No. On second thought\n**Judgement**: Yes", "pass"),
        ("**Judgement:** Yes", "pass"),
        ("**judgement:** No, not yes", "fail"),
        ("JUDGEMENT : yes", "pass"),
        ("Judgement: **Yes**", "pass"),
        ("Judgement:", "fail"),
    ],
)
def test_a_judgement_is_what_stands_behind_its_marker(
    tmp_path: Path, said: str, status: str
) -> None:
    line = {"problem": "1+1", "generation": "2", "judgement": said}
    file = Path(write(tmp_path / "output.jsonl", [line]))
    (row,) = read_nemo_skills(file, ImportChoice([str(file)]), greedy=False)
    assert row.verdict is not None
    assert row.verdict.status == status


def test_a_judgement_without_its_marker_is_refused(tmp_path: Path) -> None:
    line = {"problem": "1+1", "generation": "2", "judgement": "Yes and no: the sign is wrong."}
    file = Path(write(tmp_path / "output.jsonl", [line]))
    with pytest.raises(UserError, match=r"output\.jsonl, line 1: judgement is 'Yes and no"):
        [*read_nemo_skills(file, ImportChoice([str(file)]), greedy=False)]
