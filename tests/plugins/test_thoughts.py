"""No verifier or rule reads a model's thoughts as its answer."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from lm_eval.models.utils import postprocess_generated_text

from gapft_harness import load_verifier
from gapft_harness.core.errors import UserError
from gapft_harness.core.thoughts import opens_thought, remove_thoughts
from gapft_harness.hooks.checked import find_answer_reader
from gapft_harness.hooks.manager import load_plugins
from gapft_harness.lm_eval_bridge.code_eval import CodeEval
from gapft_harness.lm_eval_bridge.stock import StockTask
from gapft_harness.sandbox import probe_tiers

#: A thought followed by the answer, as models and servers write them.
FORMS = {
    "closed": "<think>Perhaps {thought}</think>{answer}",
    "on lines": "<think>\n{thought}\n</think>\n\n{answer}",
    "begun in the prompt": "Perhaps {thought}\n</think>\n\n{answer}",
    "two blocks": "<think>{thought}</think><think>{thought}</think>{answer}",
    "opened twice": "<think>Is a <think> enough? {thought}</think>{answer}",
    "closed twice": "<think>{thought}</think>{thought}</think>{answer}",
    "another name": "<thinking>{thought}</thinking>{answer}",
    "in capitals": "<THINK>{thought}</THINK>{answer}",
    "of Seed-OSS": "<seed:think>{thought}</seed:think>{answer}",
    "of EXAONE": "<thought>{thought}</thought>{answer}",
    "of Mistral": "[THINK]{thought}[/THINK]{answer}",
    "of gpt-oss": "<|channel|>analysis<|message|>{thought}<|end|><|start|>assistant"
    "<|channel|>final<|message|>{answer}",
    "one in another": "<think><thought>{thought}</thought>{thought}</think>{answer}",
    "a tag in quotes": "<think>{thought}. Do I write '</think>'? {thought}</think>{answer}",
    "after the answer": "{answer}\n<think>Or {thought}",
}
#: Unclosed thoughts without an answer.
CUT = {
    "cut off": "<think>Perhaps {thought}",
    "cut off later": "<think>{thought}</think>\n<think>{thought}",
    "cut off in another": "<think>{thought} <thought>{thought}</thought>{thought}",
    "cut off, of gpt-oss": "<|channel|>analysis<|message|>{thought}",
}

SQUARE = "```python\nprint(int(input()) ** 2)\n```"
CUBE = "```python\nprint(int(input()) ** 3)\n```"
#: Verifier, parameters, gold, right response and wrong response.
RULES: dict[str, tuple[str, dict[str, Any], Any, str, str]] = {
    "boxed_math": ("boxed_math", {"workers": 1}, "5", r"\boxed{5}", r"\boxed{7}"),
    "math": ("math", {"workers": 1}, "5", "It is 5.", "It is 7."),
    "whole_response": ("option_letter", {"rule": "whole_response"}, "B", "B", "C"),
    "first_explicit": ("option_letter", {"rule": "first_explicit"}, "B", "(B)", "(C)"),
    "permissive": (
        *("option_letter", {"rule": "permissive"}),
        *({"answer": "B", "options": ["one", "two", "three"]}, "B. two", "C. three"),
    ),
    "task_metric": ("task_metric", {"task": "pears"}, {"question": "?", "answer": "5"}, "5", "7"),
    "program_tests": (
        *("program_tests", {"workers": 1}),
        {"kind": "stdin", "tests": [{"input": "3\n", "expected": "9\n"}]},
        *(f"\n{SQUARE}\n", f"\n{CUBE}\n"),
    ),
}


@pytest.fixture(scope="module")
def task_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A stock task whose metric is an exact match of the whole response."""
    task_folder = tmp_path_factory.mktemp("pears")
    (task_folder / "data.jsonl").write_text(json.dumps({"question": "?", "answer": "5"}))
    task = {
        "task": "pears",
        "dataset_path": "json",
        "dataset_kwargs": {"data_files": {"train": str(task_folder / "data.jsonl")}},
        "output_type": "generate_until",
        "test_split": "train",
        "doc_to_text": "{{question}}",
        "doc_to_target": "{{answer}}",
        "metric_list": [{"metric": "exact_match"}],
    }
    (task_folder / "pears.yaml").write_text(yaml.safe_dump(task))
    return task_folder


@pytest.mark.parametrize("rule", RULES)
def test_judges_only_text_after_thought(rule: str, task_folder: Path) -> None:
    name, params, gold, right, wrong = RULES[rule]
    if name == "program_tests" and not any(tier.holds for tier in probe_tiers()):
        pytest.skip("no sandbox tier holds on this machine: NOT TESTED")
    if name == "task_metric":
        params = {**params, "include_path": str(task_folder)}
    texts, expected = [], []
    for form, text in {**FORMS, **CUT}.items():
        texts += [
            text.format(thought=wrong, answer=right),
            text.format(thought=right, answer=wrong),
        ]
        expected += [form in FORMS, False]
    with load_verifier(name, **params) as verifier:  # type: ignore[attr-defined]
        verdicts = verifier.verify(texts, [gold] * len(texts))
    assert [verdict.passed for verdict in verdicts] == expected


def test_reads_answers_without_thoughts() -> None:
    text = "<think>Perhaps (C)</think>\n(B) two"
    verifier = load_verifier("option_letter", rule="first_explicit")
    answers = find_answer_reader(verifier)
    assert answers is not None
    assert answers.read([text], ["B"]) == ["B"]
    assert verifier.opening(text, gold="B") == "B"  # type: ignore[attr-defined]
    with load_verifier("boxed_math", workers=1) as boxed:  # type: ignore[attr-defined]
        assert boxed.answer(r"<think>\boxed{7}</think>\boxed{5}") == "5"
        assert boxed.answer(r"<think>\boxed{7}") is None


def test_task_filters_see_no_thoughts(task_folder: Path) -> None:
    text = "<think>7</think>\n\n5"
    (outcome,) = StockTask("pears", include_path=str(task_folder)).outcomes(
        [{"question": "?", "answer": "5"}], [text]
    )
    assert (outcome.filtered, outcome.verdict.passed) == ("5", True)


def test_code_eval_ignores_thoughts() -> None:
    if not any(tier.holds for tier in probe_tiers()):
        pytest.skip("no sandbox tier holds on this machine: NOT TESTED")
    head = "def add(a, b):\n"
    candidates = [
        f"{head}<think>a * b?</think>    return a + b",
        f"{head}<think>\n    return a + b",
    ]
    _, results = CodeEval().compute(predictions=[candidates], references=["assert add(2, 3) == 5"])
    assert [outcome["passed"] for _, outcome in results[0]] == [True, False]


PLUGIN = """
from gapft_harness.api import Verdict, hookimpl


class Starts:
    def verify(self, texts, golds):
        return [Verdict("pass" if t.startswith(g) else "fail") for t, g in zip(texts, golds)]

    def answer(self, text):
        return text

    def feedback(self, texts, golds):
        return list(texts)


@hookimpl
def register_verifiers(register):
    register("starts", Starts)
    register("whole", Starts, sees_thoughts=True)
"""


def test_plugin_verifier_may_request_thoughts(tmp_path: Path) -> None:
    (tmp_path / "plugin.py").write_text(PLUGIN)
    plugins = load_plugins([str(tmp_path / "plugin.py")])
    text = "<think>no</think>yes"
    for name, visible in (("starts", "yes"), ("whole", text)):
        verifier: Any = plugins.create_verifier(name, {})
        assert verifier.verify([text], [visible])[0].passed
        assert verifier.feedback([text], [visible]) == [visible]
        assert verifier.answer(text) == visible
        assert not hasattr(verifier, "opening")
    assert "thought_rules" in plugins.create_verifier("starts", {}).describe()  # type: ignore[attr-defined]
    assert not hasattr(plugins.create_verifier("whole", {}), "describe")


@pytest.mark.parametrize(
    ("text", "rest"),
    [
        ("no tag: 3 < think > 2", "no tag: 3 < think > 2"),
        ("  return 1", "  return 1"),
        ("<think>x</think>\n\n    return 1", "    return 1"),
        ("<think>x</think> B", "B"),
        ("one <think>x</think> two", "one \n two"),
        ("<thinkers>x</thinkers>", "<thinkers>x</thinkers>"),
        ("print('<think>')", "print('<think>')"),
        ("[think] about it", "[think] about it"),
        ("<think></think>", ""),
        ("", ""),
    ],
)
def test_remove_thoughts_keeps_rest(text: str, rest: str) -> None:
    assert remove_thoughts(text) == rest


pieces = st.sampled_from(
    ["<think>", "</think>", "<thought>", "</thought>", "[THINK]", "[/THINK]", "'", '"', "\n", " ",
     "<|channel|>", "analysis", "final", "<|message|>", "<", "think>", "A"]
)  # fmt: skip


@given(st.lists(pieces, max_size=12).map("".join))
def test_remove_thoughts_is_idempotent(text: str) -> None:
    once = remove_thoughts(text)
    assert remove_thoughts(once) == once


@given(st.text(), st.text(alphabet="ab \n"))
def test_remove_thoughts_removes_whole_thought(thought: str, rest: str) -> None:
    marked = f"<think>{thought}Ω</think>{rest}"
    assert "Ω" not in remove_thoughts(marked)


# The end of the model's reasoning, as lm_eval's think_end_token


@given(st.lists(st.sampled_from(["<end>", "a", " ", "\n", "B"]), max_size=12).map("".join))
def test_think_end_token_follows_lm_eval(text: str) -> None:
    expected = postprocess_generated_text(text, None, "<end>")
    assert remove_thoughts(text, "<end>").strip() == expected.strip()


def test_think_end_token_is_a_parameter_of_every_verifier(tmp_path: Path) -> None:
    (tmp_path / "plugin.py").write_text(PLUGIN)
    plugins = load_plugins([str(tmp_path / "plugin.py")])
    text = "no. no?<end> yes"
    for name, visible in (("starts", "yes"), ("whole", text)):
        verifier: Any = plugins.create_verifier(name, {"think_end_token": "<end>"})
        assert verifier.verify([text], [visible])[0].passed
        assert verifier.answer(text) == visible


def test_other_rule_has_the_same_think_end_token() -> None:
    params = {"rule": "whole_response", "think_end_token": "<end>"}
    other = load_plugins().find_other_rule("option_letter", params)
    assert other is not None
    assert other.params["think_end_token"] == "<end>"
    assert (
        "think_end_token"
        not in load_plugins().find_other_rule("option_letter", {"rule": "whole_response"}).params
    )  # type: ignore[union-attr]


@pytest.mark.parametrize("token", [151668, "151668", "", " ", ["</think>"], True])
def test_rejects_think_end_token_that_is_not_text(token: Any) -> None:
    with pytest.raises(UserError, match="think_end_token"):
        load_plugins().create_verifier("option_letter", {"think_end_token": token})


@pytest.mark.parametrize(
    ("prompt", "is_open"),
    [
        ("<|im_start|>assistant\n<think>\n", True),
        ("<|im_start|>assistant\n<THINK>", True),
        ("[INST] ? [/INST][THINK]", True),
        ("<|im_start|>assistant\n<think>\n\n</think>\n\n", False),
        ("<|im_start|>assistant\n", False),
        ("How do I write '<think>'", False),
        ("<think> is a tag?", False),
        ("", False),
    ],
)
def test_opens_thought(prompt: str, is_open: bool) -> None:
    assert opens_thought(prompt) is is_open
