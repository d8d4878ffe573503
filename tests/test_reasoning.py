"""Responses with reasoning, in their text or apart from it."""

from __future__ import annotations

from pathlib import Path

import pytest
from transformers import AutoTokenizer

from gapft_harness.core.errors import UserError
from gapft_harness.core.records import Arm
from gapft_harness.run_directory import layout
from gapft_harness.run_directory.directory import RunDirectory
from gapft_harness.run_directory.tables import read_examples
from gapft_harness.stages.verify.run import verify
from tests.kit.recording_run import LettersTask, write_letters_task
from tests.kit.tiny_models import write_byte_llama

ARM = Arm("gapft", 13)

#: The recording sampler reasons before its text, or apart from it, with ids of the tokenizer.
_REASONING = """

from transformers import AutoTokenizer


class Recording(Recording):
    def __init__(self, settings, adapter):
        super().__init__(settings, adapter)
        self._tokenizer = AutoTokenizer.from_pretrained(self._args["pretrained"])

    def _encode(self, text):
        return tuple(self._tokenizer(text, add_special_tokens=False).input_ids)

    def generate(self, requests, decoding, report):
        answers = super().generate(requests, decoding, report)
        prompts = [self._encode(request.prompt) for request in requests]
        return [Generated(ids, answer.generations) for ids, answer in zip(prompts, answers)]

    def _respond(self, request, index):
        text = self._write(request, index)
        if self._args["apart"]:
            ids = self._encode("aeiou?") + self._encode(text)
            return Generation(text, ids, "stop", "retokenized", reasoning="aeiou?")
        text = "<think>aeiou?</think>\\n\\n" + text
        return Generation(text, self._encode(text), "stop")
"""


@pytest.fixture
def task(tmp_path: Path) -> LettersTask:
    letters = write_letters_task(tmp_path, pool=12)
    with (tmp_path / "plugin.py").open("a") as plugin:
        plugin.write(_REASONING)
    write_byte_llama(tmp_path / "model")
    return letters


def select(task: LettersTask, apart: bool) -> RunDirectory:
    """Search and select; return the run."""
    model = {"args": {"pretrained": str(task.folder / "model"), "apart": apart}}
    stages, splits = ("states", "select"), ("pool", "audit")
    return task.run("r", stages, splits, model=model, conditions=["gapft"])


def test_trains_on_the_response_as_generated(task: LettersTask) -> None:
    run = select(task, apart=False)
    tokenizer = AutoTokenizer.from_pretrained(task.folder / "model")
    examples = read_examples(run.path / layout.selection_path(ARM))
    texts = [tokenizer.decode(example.response_ids) for example in examples]
    assert all(text.startswith("<think>aeiou?</think>") for text in texts)
    assert not verify(run.path, plugin_files=task.plugins).differences


def test_refuses_reasoning_without_exact_ids(task: LettersTask) -> None:
    with pytest.raises(UserError, match=r"\b12\b"):
        select(task, apart=True)
