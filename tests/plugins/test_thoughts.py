"""Thoughts are removed before filters, verifiers and code tests read a response.

That no bundled verifier reads an answer in a thought is a law of test_verifiers.py.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from lm_eval.models.utils import postprocess_generated_text

from gapft_harness import load_verifier
from gapft_harness.core.thoughts import opens_thought, remove_thoughts
from gapft_harness.hooks.manager import load_plugins


def test_opening_is_read_without_thoughts() -> None:
    judge = load_verifier("option_letter", rule="first_explicit")
    assert judge.read_openings(["<think>Perhaps (C)</think>\n(B) two"], ["B"]) == ["B"]


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
    """Also where the token that ends the thoughts is a parameter, as every verifier has it."""
    (tmp_path / "plugin.py").write_text(PLUGIN)
    plugins = load_plugins([str(tmp_path / "plugin.py")])
    for params, text in (
        ({}, "<think>no</think>yes"),
        ({"think_end_token": "<end>"}, "no. no?<end> yes"),
    ):
        for name, visible in (("starts", "yes"), ("whole", text)):
            judge = plugins.create_verifier(name, params)
            assert judge.verify([text], [visible])[0].passed
            assert judge.give_feedback([text], [visible]) == [visible]
            assert judge.read_answers([text], [visible]) == [visible]
            assert not judge.reads_openings
    assert "thought_rules" in plugins.create_verifier("starts", {}).describe()
    assert plugins.create_verifier("whole", {}).describe() == {}


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


# The end of the model's reasoning, as lm_eval's think_end_token


@given(st.lists(st.sampled_from(["<end>", "a", " ", "\n", "B"]), max_size=12).map("".join))
def test_think_end_token_follows_lm_eval(text: str) -> None:
    expected = postprocess_generated_text(text, None, "<end>")
    assert remove_thoughts(text, "<end>").strip() == expected.strip()


@pytest.mark.parametrize("token", [{}, {"think_end_token": "<end>"}])
def test_other_rule_has_the_same_think_end_token(token: dict[str, str]) -> None:
    params = {"rule": "whole_response", **token}
    other = load_plugins().find_other_verifier("option_letter", params)
    assert other is not None
    assert other.params.get("think_end_token") == token.get("think_end_token")


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
