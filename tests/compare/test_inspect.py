"""Logs written by Inspect, and by lm_eval's command for the same task.

``make test-inspect`` installs Inspect in a separate folder, which comes first on the path.
"""

from __future__ import annotations

import gzip
import json
import zipfile
from pathlib import Path
from typing import Any

import pytest

from gapft_harness.compare.comparison import compare
from gapft_harness.compare.options import CompareOptions, Rule
from gapft_harness.core.errors import UserError
from gapft_harness.outcomes.logs import open_log
from gapft_harness.recipe.sections import LogResponses
from gapft_harness.stages.search.log_responses import read_responses
from tests.compare.logs import join_notes, read_results

#: Number of sums; an answer is right where its digit is 1.
SUMS = 6
BEFORE, AFTER = "110010", "011010"
EPOCHS = ["110000", "000001", "100010"]


def evaluate_with_inspect(folder: Path, *epochs: str, cut: str = "", **settings: Any) -> str:
    """Write a log of the sums with ``inspect_ai.eval``, one epoch for each row of digits.

    Responses with a digit of ``cut`` are cut at the token limit.
    """
    inspect = pytest.importorskip("inspect_ai")
    from inspect_ai.dataset import Sample
    from inspect_ai.model import ModelOutput, ModelUsage, get_model
    from inspect_ai.scorer import includes, match

    def build_output(right: str, number: int) -> ModelOutput:
        output = ModelOutput.from_content("mockllm/model", f"{2 * number if right == '1' else 99}")
        # without usage, Inspect downloads a tokenizer to count tokens
        output.usage = ModelUsage(output_tokens=number)
        if right in cut:
            output.choices[0].stop_reason = "max_tokens"
        return output

    samples = [
        Sample(id=f"q{n}", input=f"{n}+{n}?", target=f"{2 * n}", metadata={"level": n % 2})
        for n in range(1, SUMS + 1)
    ]
    task = inspect.Task(
        dataset=samples, scorer=[includes(), match(location="exact")], name="sums",
        epochs=len(epochs),
    )  # fmt: skip
    outputs = [build_output(digit, n) for right in epochs for n, digit in enumerate(right, 1)]
    (log,) = inspect.eval(
        task, model=get_model("mockllm/model", custom_outputs=outputs), log_dir=str(folder),
        display="none", max_samples=1, max_connections=1, **settings,
    )  # fmt: skip
    assert log.status == "success", log.error
    return str(folder)


def test_reads_epochs_as_samples(tmp_path: Path) -> None:
    before, samples = (
        evaluate_with_inspect(tmp_path / "a", BEFORE),
        evaluate_with_inspect(tmp_path / "b", *EPOCHS),
    )
    comparison = compare(before, [before], CompareOptions(source_samples=[samples]))
    assert comparison.samples is not None
    passing = [sum(int(right[n]) for right in EPOCHS) for n in range(SUMS)]
    by_document = dict(zip(comparison.before.numbers, passing, strict=True))
    order = [comparison.before.numbers[row] for row in comparison.joined.before.tolist()]
    assert comparison.samples.k == len(EPOCHS)
    assert comparison.samples.passing.tolist() == [by_document[name] for name in order]
    (path,) = Path(samples).iterdir()
    log = open_log(path)
    drawn = [*log.read_samples()]
    assert [(sample.number, sample.index) for sample in drawn] == [
        (f"q{n}", epoch) for n in range(1, SUMS + 1) for epoch in range(len(EPOCHS))
    ]
    assert {next(iter(sample.scores)) for sample in drawn} == {"includes,none"}
    choice = CompareOptions(verifier=Rule("boxed_math"), metric="match")
    (judged,) = compare(samples, [], choice).models.values()
    assert (judged.before, judged.after) == (pytest.approx(sum(passing) / SUMS / len(EPOCHS)), 0)
    rows = [*read_responses(log, LogResponses(metric="match"), False)]
    assert [row.index for row in rows[:4]] == [0, 1, 2, 0]
    assert [row.passed for row in rows] == [
        right[n] == "1" for n in range(SUMS) for right in EPOCHS
    ]


def test_stop_reasons_give_the_share_of_cut_responses(tmp_path: Path) -> None:
    before = evaluate_with_inspect(tmp_path / "before", BEFORE, cut="0")
    after = evaluate_with_inspect(tmp_path / "after", AFTER)
    results = read_results(compare(before, [f"tuned={after}"], CompareOptions()))
    shares = {row["model"]: row["cut"] for row in results["cut"]}
    assert shares == {"before": BEFORE.count("0") / SUMS, "tuned": 0}


def test_rejects_unreadable_logs(tmp_path: Path) -> None:
    (log,) = Path(evaluate_with_inspect(tmp_path / "a", BEFORE)).iterdir()
    newer, cut, torn = (tmp_path / f"{name}.eval" for name in ("newer", "cut", "torn"))
    _rewrite_header(log, newer, lambda header: {**header, "version": 99})
    _rewrite_header(log, cut, lambda header: None)
    torn.write_bytes(log.read_bytes()[:-100])
    packed = tmp_path / "log.eval.gz"
    packed.write_bytes(gzip.compress(log.read_bytes()))
    for path in (newer, cut, torn, packed):
        with pytest.raises(UserError, match=path.name):
            compare(str(path), [str(path)], CompareOptions())


def _rewrite_header(log: Path, copy: Path, change: Any) -> None:
    """Copy a log with a changed header; None: without one, like a log of a stopped run."""
    import zipfile_zstd  # noqa: F401 (Inspect's; it teaches zipfile what Inspect packs by)

    with zipfile.ZipFile(log) as source, zipfile.ZipFile(copy, "w") as target:
        for name in source.namelist():
            content = source.read(name)
            if name == "header.json":
                header = change(json.loads(content))
                if header is None:
                    continue
                content = json.dumps(header).encode()
            target.writestr(name, content)


def write_scored_log(folder: Path, kind: str, right: str) -> str:
    """Write a log of the sums with our own scorer; the fourth sample has a fault of this kind."""
    inspect = pytest.importorskip("inspect_ai")
    from inspect_ai.dataset import Sample
    from inspect_ai.model import ModelOutput
    from inspect_ai.scorer import CORRECT, INCORRECT, Score, accuracy, mean, scorer
    from inspect_ai.solver import solver

    def build_answer(number: int) -> str:
        return str(2 * number if right[number - 1] == "1" else 99)

    @solver
    def answers() -> Any:
        async def solve(state: Any, generate: Any) -> Any:
            number = int(state.sample_id)
            if kind == "error" and number == 4:
                raise RuntimeError("hiccup")
            state.output = ModelOutput.from_content("mock", build_answer(number))
            return state

        return solve

    @scorer(metrics=[accuracy()])
    def exact() -> Any:
        async def score(state: Any, target: Any) -> Any:
            if kind == "nan" and int(state.sample_id) == 4:
                return Score(value=float("nan"))
            return Score(value=CORRECT if state.output.completion == target.text else INCORRECT)

        return score

    @scorer(metrics={"correct": [mean()], "short": [mean()]})
    def parts() -> Any:
        async def score(state: Any, target: Any) -> Any:
            passed = int(state.output.completion == target.text)
            return Score(value={"correct": passed, "short": 1})

        return score

    samples = [Sample(id=n, input=f"{n}+{n}?", target=f"{2 * n}") for n in range(1, SUMS + 1)]
    task = inspect.Task(
        dataset=samples,
        solver=answers(),
        scorer=parts() if kind == "parts" else exact(),
        name="sums",
    )
    inspect.eval(
        task, model="mockllm/model", log_dir=str(folder), fail_on_error=False, display="none",
    )  # fmt: skip
    return str(folder)


@pytest.mark.parametrize("kind", ["nan", "error"])
def test_names_samples_without_score(kind: str, tmp_path: Path) -> None:
    before, after = (
        write_scored_log(tmp_path / "b", kind, BEFORE),
        write_scored_log(tmp_path / "a", kind, AFTER),
    )
    with pytest.raises(UserError, match="sample 4"):
        compare(before, [after], CompareOptions())
    comparison = compare(before, [after], CompareOptions(common=True))
    assert len(comparison.joined.items) == SUMS - 1
    assert "before: 1 of 6 documents" in join_notes(comparison)
    with pytest.raises(UserError, match="sample 4"):
        compare(before, [], CompareOptions(verifier=Rule("math", {"workers": 1})))


@pytest.mark.parametrize("metric", [None, "correct", "parts.correct"])
def test_reads_score_entries_as_metrics(metric: str | None, tmp_path: Path) -> None:
    before, after = (
        write_scored_log(tmp_path / "b", "parts", BEFORE),
        write_scored_log(tmp_path / "a", "parts", AFTER),
    )
    (paired,) = compare(before, [after], CompareOptions(metric=metric)).models.values()
    ups = sum(a < b for a, b in zip(BEFORE, AFTER, strict=True))
    assert (paired.before, paired.after, paired.gained) == (0.5, 0.5, ups)
    (short,) = compare(before, [after], CompareOptions(metric="short")).models.values()
    assert short.before == 1.0
    log = open_log(next(Path(before).iterdir()))
    with pytest.raises(UserError, match=r"parts\.correct, parts\.short"):
        [*read_responses(log, LogResponses(), False)]
    rows = read_responses(log, LogResponses(metric="correct"), False)
    assert [row.passed for row in rows] == [d == "1" for d in BEFORE]
