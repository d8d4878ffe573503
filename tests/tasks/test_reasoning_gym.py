"""Tasks whose problems Reasoning Gym generates, and the verifier that asks its scorers."""

from __future__ import annotations

import json
import math
import os
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gapft_harness import load_verifier
from gapft_harness.core.errors import UserError
from gapft_harness.core.records import Verdict
from gapft_harness.lm_eval_bridge.benchmarks import reasoning_gym
from gapft_harness.lm_eval_bridge.benchmarks.reasoning_gym import load, share_out
from gapft_harness.lm_eval_bridge.discovery import load_task
from gapft_harness.lm_eval_bridge.task_file.documents import Document
from gapft_harness.plugins.verifiers.reasoning_gym import EXTRACTION_RULES, remove_wrapping
from tests.canned_model import CannedModel
from tests.command import gapft, succeed
from tests.tasks.benchmark_files import needs_reasoning_gym

pytestmark = needs_reasoning_gym

YAML = """
task: sums
class: !function gapft_harness.lm_eval_bridge.reasoning_gym.ReasoningGymTask
dataset_kwargs: {kwargs}
"""


def write_task(folder: Path, **kwargs: Any) -> Path:
    (folder / "sums.yaml").write_text(YAML.replace("{kwargs}", json.dumps(kwargs)))
    return folder


def list_problems(splits: Any, *names: str) -> list[Document]:
    return [row for name in names or ("pool", "audit") for row in splits[name]]


def collect_questions(splits: Any, *names: str) -> set[str]:
    return {row["question"] for row in list_problems(splits, *names)}


# The split


def test_problems_are_distinct_across_splits() -> None:
    splits = load({"lcm": {"max_value": 15}, "chain_sum": {"weight": 3}}, pool=120, audit=60)
    assert (len(splits["pool"]), len(splits["audit"])) == (120, 60)
    assert len(collect_questions(splits)) == 180
    for name, count in (("pool", 30), ("audit", 15)):
        assert sum(row["generator"] == "lcm" for row in splits[name]) == count


def test_pool_and_audit_are_alike_for_few_problems() -> None:
    """Common problems are found first; a hash, which knows nothing of that, divides them."""
    order = {"generator": "lcm", "settings": {"max_value": 15}, "seed": 0, "count": 150}
    generated = [row["question"] for row in reasoning_gym.generate(order)["problems"]]
    place = {question: number for number, question in enumerate(generated)}
    splits = load({"lcm": {"max_value": 15}}, pool=75, audit=75)
    assert collect_questions(splits) == set(generated)
    means = [
        statistics.mean(place[q] for q in collect_questions(splits, n)) for n in ("pool", "audit")
    ]
    error = 150 / math.sqrt(12) * math.sqrt(2 / 75)
    assert abs(means[0] - means[1]) < 3 * error
    # Of problems generated one after the other, the audit's would all be late ones.
    assert 6 * error < 75


def test_larger_pool_extends_smaller_one() -> None:
    generators = {"chain_sum": {}, "lcm": {"weight": 0.4}}
    small, large = (load(generators, pool=pool, audit=30) for pool in (50, 90))
    assert collect_questions(small, "pool") < collect_questions(large, "pool")
    assert collect_questions(small) < collect_questions(large)


def test_generators_have_independent_sequences() -> None:
    alone = load({"lcm": {}}, pool=20, audit=10)
    mixed = load({"gcd": {}, "lcm": {}}, pool=40, audit=20)
    assert collect_questions(alone) < collect_questions(mixed)
    other = load({"lcm": {}}, pool=20, audit=10, seed=1)
    assert collect_questions(other) != collect_questions(alone)


@given(
    st.dictionaries(st.sampled_from("abcde"), st.floats(0.1, 10), min_size=1), st.integers(0, 60)
)
def test_shares_follow_weights_and_never_shrink(weights: dict[str, float], count: int) -> None:
    shares, more = share_out(weights, count), share_out(weights, count + 1)
    assert sum(shares.values()) == count
    assert all(more[name] >= shares[name] for name in weights)
    total = sum(weights.values())
    for name in weights:
        assert abs(shares[name] - weights[name] / total * count) < len(weights)


DIGEST = """
import hashlib, json
from gapft_harness.lm_eval_bridge.benchmarks.reasoning_gym import load
if __name__ == "__main__":
    splits = load({"isomorphic_strings": {}, "ransom_note": {}, "chain_sum": {}}, 30, 15)
    found = json.dumps({name: list(rows) for name, rows in splits.items()})
    print(hashlib.sha256(found.encode()).hexdigest())
"""


def test_problems_do_not_depend_on_hash_seed(tmp_path: Path) -> None:
    """Two of these generators iterate over sets, whose order hangs on a process's hash seed."""
    (tmp_path / "digest.py").write_text(DIGEST)
    digests = {
        subprocess.run(
            [sys.executable, str(tmp_path / "digest.py")],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(digests) == 1


def test_generator_may_get_no_problem() -> None:
    splits = load({"gcd": {}, "lcm": {"weight": 0.01}}, pool=5, audit=5)
    assert {row["generator"] for row in list_problems(splits)} == {"gcd"}


def test_first_problems_come_from_all_generators() -> None:
    splits = load({"gcd": {}, "lcm": {}}, pool=60, audit=60)
    for name in splits:
        assert {row["generator"] for row in list(splits[name])[:15]} == {"gcd", "lcm"}


# The task


def test_short_yaml_makes_a_task(tmp_path: Path) -> None:
    write_task(tmp_path, generators={"gcd": {}}, pool=12, audit=6)
    task = load_task("sums", [tmp_path])
    pool, audit = task.read_pool(), task.read_audit()
    assert (len(pool), len(audit)) == (12, 6)
    assert audit[0].prompt.endswith("\n\nReply with only the final result, as: Answer: RESULT")
    assert audit[0].id.startswith("gcd-")
    assert set(audit[0].document) == {"question", "answer", "generator"}
    assert task.verifier == "reasoning_gym"
    with load_verifier(task.verifier) as verifier:  # type: ignore[attr-defined]
        for split in ("pool", "audit"):
            task.check_golds(verifier, split)
        answers = [f"Answer: {problem.gold['answer']}" for problem in audit]
        golds = [problem.gold for problem in audit]
        assert all(verdict.passed for verdict in verifier.verify(answers, golds))
        assert not verifier.verify(["Answer: 0"], [golds[0]])[0].passed


def test_few_shot_examples_use_answer_format(tmp_path: Path) -> None:
    write_task(tmp_path, generators={"gcd": {}}, pool=12, audit=6)
    with (tmp_path / "sums.yaml").open("a") as file:
        file.write("num_fewshot: 2\n")
    task = load_task("sums", [tmp_path])
    assert task.read_audit()[0].prompt.count(" Answer: ") == 5
    with load_verifier(task.verifier) as verifier:  # type: ignore[attr-defined]
        task.check_golds(verifier, "audit")


def test_lm_eval_evaluates_task(tmp_path: Path) -> None:
    from lm_eval import simple_evaluate
    from lm_eval.tasks import TaskManager

    write_task(tmp_path, generators={"prime_factorization": {}}, pool=2, audit=8)
    right = {p.prompt: p.gold["answer"] for p in load_task("sums", [tmp_path]).read_audit()}
    texts = iter(["x", "3 * 11"])

    def answer(prompt: str) -> str:
        return f"Answer: {next(texts, right[prompt])}"

    done = simple_evaluate(
        model=CannedModel(answer), tasks=["sums"], log_samples=True, bootstrap_iters=0,
        task_manager=TaskManager(include_defaults=False, include_path=str(tmp_path)),
    )  # fmt: skip
    results = done["results"]["sums"]
    assert results["pass@1,none"] == 6 / 8
    assert results["verifier_errors,none"] == 2  # its scorer raises on what is no factorization


def test_records_package_version(tmp_path: Path) -> None:
    write_task(tmp_path, generators={"gcd": {}}, pool=3, audit=3)
    succeed(
        "gap", "sums", "--model", "dummy", "--k", "2", "--include-path", tmp_path,
        "--out", tmp_path / "gap",
    )  # fmt: skip
    manifest = json.loads((tmp_path / "gap" / "manifest.json").read_text())
    assert '"reasoning-gym": "0.1' in json.dumps(manifest)


def test_word_problem_examples_pass() -> None:
    task = load_task("gapft_rg_word_problems")
    problem = task.read_audit()[0]
    assert problem.prompt.startswith("A baker makes 12 rolls")
    assert problem.prompt.count("Answer: RESULT") == 3
    with load_verifier(task.verifier) as verifier:  # type: ignore[attr-defined]
        task.check_golds(verifier, "audit")


# Mistakes


@pytest.mark.parametrize(
    ("kwargs", "expected"),
    [
        ({"generators": {"lmc": {}}}, ("generators.lmc", "did you mean 'lcm'")),
        ({"generators": {"composite": {}}}, ("composite", "unknown generator")),
        ({"generators": {"lcm": {"max_vale": 9}}}, ("lcm.max_vale", "did you mean 'max_value'")),
        ({"generators": {"lcm": {"max_value": 0}}}, ("generators.lcm", "max_value must be")),
        ({"generators": {"gsm_symbolic": {"difficulty": 2}}}, ("<= self.difficulty",)),
        ({"generators": {"lcm": {"max_value": "nine"}}}, ("generators.lcm", "TypeError")),
        ({"generators": {"lcm": {"weight": 0}}}, ("generators.lcm.weight",)),
        ({"generators": {"lcm": {"weight": True}}}, ("generators.lcm.weight",)),
        ({"generators": {"lcm": {"seed": 1}}}, ("generators.lcm.seed", "dataset_kwargs.seed")),
        ({"generators": {"lcm": {"size": 1}}}, ("generators.lcm.size", "dataset_kwargs.pool")),
        ({"generators": {"lcm": 3}}, ("generators.lcm", "3")),
        ({"generators": ["lcm"]}, ("generators", "['lcm']")),
        ({"generators": {}}, ("generators", "{}")),
        ({"generators": {"graph_color": {}}}, ("graph_color", "no recorded answer")),
        ({"generators": {"arc_agi": {}}}, ("arc_agi", "stored as JSON")),
        ({"pool": 0}, ("pool", "found 0")),
        ({"audit": "many"}, ("audit", "'many'")),
        ({"seed": -1}, ("seed", "-1")),
        ({"pools": 3}, ("pools", "did you mean 'pool'")),
        (
            {"generators": {"lcm": {"max_value": 3}}, "pool": 50},
            ("generators.lcm", "found 9 different"),
        ),
    ],
)
def test_reports_mistake_by_key(
    tmp_path: Path, kwargs: dict[str, Any], expected: tuple[str, ...]
) -> None:
    write_task(tmp_path, **{"generators": {"lcm": {}}, "pool": 4, "audit": 2, **kwargs})
    with pytest.raises(UserError) as caught:
        load_task("sums", [tmp_path])
    message = str(caught.value)
    assert str(tmp_path / "sums.yaml") in message
    assert "dataset_kwargs" in message
    for words in expected:
        assert words in message


def test_rejects_generators_with_same_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    same = [{"question": "1?", "answer": "1", "generator": name} for name in ("a", "b")]
    monkeypatch.setattr(reasoning_gym, "_generate_all", lambda orders: [same[:1], same[1:]])
    with pytest.raises(UserError, match="b and a generate the same problem"):
        load({"a": {}, "b": {}}, pool=1, audit=1)


def test_missing_package_names_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reasoning_gym, "is_installed", lambda package: False)
    write_task(tmp_path, generators={"lcm": {}}, pool=4, audit=2)
    with pytest.raises(UserError, match=r"pip install 'gapft-harness\[reasoning-gym\]'"):
        load_task("sums", [tmp_path])


def test_mistake_gives_no_traceback(tmp_path: Path) -> None:
    write_task(tmp_path, generators={"lmc": {}}, pool=4, audit=2)
    done = gapft("gap", "sums", "--model", "dummy", "--include-path", tmp_path)
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    assert "did you mean" in done.stderr


# The verifier


LCM = {"generator": "lcm", "settings": {}, "question": "?", "answer": "12", "metadata": {}}


@pytest.mark.parametrize(
    ("rule", "response", "answer"),
    [
        ("marked", "Answer: 12", "12"),
        ("marked", "12", "12"),
        ("marked", "Answer: 12.", "12"),
        ("marked", "**Answer:** 12", "12"),
        ("marked", "**Answer: 12**", "12"),
        ("marked", "Final answer: `12`", "12"),
        ("marked", "The answer is: $12$", "12"),
        ("marked", "ANSWER:\n12\nAs 12 = 3 * 4.", "12"),
        ("marked", "Answer: 7? No.\nAnswer: 12", "12"),
        ("marked", "4 * 3 = 12\n\\boxed{12}", "12"),
        ("marked", "Answer: \\boxed{12}", "12"),
        ("marked", "It is 12.\nYes.", ""),
        ("marked", "answers: 12\nor 13", ""),
        ("marked", "", ""),
        ("rest", "Answer:\n1 2\n3 4", "1 2\n3 4"),
        ("rest", "12", ""),
        ("boxed", "Answer: 7, \\boxed{12}", "12"),
        ("boxed", "Answer: 12", ""),
        ("whole", " 12\n", "12"),
    ],
)
def test_extracts_answer(rule: str, response: str, answer: str) -> None:
    assert remove_wrapping(EXTRACTION_RULES[rule](response), "12") == answer


def test_keeps_marks_of_recorded_answer() -> None:
    assert remove_wrapping("$\\frac{1}{2}$", "$\\frac{1}{2}$") == "$\\frac{1}{2}$"
    assert remove_wrapping("**It rained.**", "It rained.") == "It rained."
    assert remove_wrapping("*", "12") == "*"


def judge_response(response: str, gold: Any = LCM, **params: Any) -> Verdict:
    with load_verifier("reasoning_gym", workers=1, **params) as verifier:  # type: ignore[attr-defined]
        [verdict] = verifier.verify([response], [gold])
    return verdict


def test_pass_at_sets_passing_score() -> None:
    almost = {**LCM, "generator": "chain_sum"}  # whose scorer gives a part for "12 apples"
    assert judge_response("Answer: 12", almost) == Verdict("pass")
    partly = judge_response("Answer: 12 apples", almost)
    assert partly.status == "fail"
    assert "scored 0.2" in partly.reason
    assert judge_response("Answer: 12 apples", almost, pass_at=0.2).passed
    assert not judge_response("Answer: 13", almost, pass_at=0.2).passed


def test_raising_scorer_fails_only_its_response() -> None:
    factors = {**LCM, "generator": "prime_factorization", "answer": "3 × 11"}
    with load_verifier("reasoning_gym", workers=1) as verifier:  # type: ignore[attr-defined]
        verdicts = verifier.verify(["Answer: 3 * 11", "Answer: 3 × 11"], [factors] * 2)
    assert [verdict.status for verdict in verdicts] == ["error", "pass"]
    assert "ValueError" in verdicts[0].reason


def test_slow_scorer_times_out() -> None:
    integral = {
        "generator": "intermediate_integration", "settings": {}, "question": "?",
        "answer": "x**2/2 + C", "metadata": {"integrand": "x", "variable": "x"},
    }  # fmt: skip
    assert judge_response("Answer: x**2/2 + C", integral).passed
    assert judge_response("Answer: x**2/2 + C", integral, timeout_s=1e-4).status == "timeout"


@pytest.mark.parametrize(
    ("params", "expected"),
    [
        ({"extract": "markd"}, "did you mean 'marked'"),
        ({"pass_at": 0}, "pass_at"),
        ({"pass_at": 2}, "pass_at"),
        ({"timeout_s": True}, "timeout_s"),
    ],
)
def test_rejects_invalid_parameters(params: dict[str, Any], expected: str) -> None:
    with pytest.raises(UserError, match=expected):
        load_verifier("reasoning_gym", **params)


def test_rejects_gold_of_other_task() -> None:
    verifier: Any = load_verifier("reasoning_gym")
    assert "object" in verifier.check_gold("12")
    assert "'metadata'" in verifier.check_gold({**LCM, "metadata": "none"})
    assert verifier.check_gold({**LCM, "answer": " "})
    assert verifier.check_gold(LCM) == ""
