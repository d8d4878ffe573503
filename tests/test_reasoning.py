"""Responses with reasoning, in their text or apart from it."""

from __future__ import annotations

from typing import Any

import pytest
from transformers import AutoTokenizer

from gapft_harness.core.errors import UserError
from gapft_harness.core.records import Arm
from gapft_harness.run_directory import layout
from gapft_harness.run_directory.tables import read_examples
from gapft_harness.stages.verify.run import verify
from tests.kit.recording_run import LettersTask, write_letters_task
from tests.kit.tiny_models import write_byte_llama

ARM = Arm("gapft", 13)
POOL = 12

#: The text of a response; ``{}``: the answer, as the recording sampler writes it.
FORMS = {
    "thinks": "<think>aeiou?</think>\n\n{}",
    "does not think": "{}",
    "apart": "{}",
}
#: Changes of the recording sampler: ids of the model's tokenizer, and the form of the texts.
_CHANGES = (
    ("import json\n", "import json\nfrom transformers import AutoTokenizer\n"),
    (
        "        self._args = settings.model_args\n",
        "        self._args = settings.model_args\n"
        '        tokenizer = AutoTokenizer.from_pretrained(self._args["pretrained"])\n'
        "        self._ids = lambda text: tuple(\n"
        "            tokenizer(text, add_special_tokens=False).input_ids)\n",
    ),
    ("tuple(request.prompt.encode())", "self._ids(request.prompt)"),
    (
        'return Generation(text, tuple(text.encode()), self._args.get("finish", "stop"))',
        'text = self._args["form"].replace("{}", text)\n'
        '        if self._args["apart"]:\n'
        '            ids = self._ids("aeiou?") + self._ids(text)\n'
        '            return Generation(text, ids, "stop", "retokenized", reasoning="aeiou?")\n'
        '        return Generation(text, self._ids(text), self._args.get("finish", "stop"))',
    ),
)


@pytest.fixture(scope="module")
def task(tmp_path_factory: pytest.TempPathFactory) -> LettersTask:
    folder = tmp_path_factory.mktemp("letters")
    letters = write_letters_task(folder, pool=POOL)
    plugin = (folder / "plugin.py").read_text()
    for old, new in _CHANGES:
        assert old in plugin
        plugin = plugin.replace(old, new)
    (folder / "plugin.py").write_text(plugin)
    write_byte_llama(folder / "model")
    return letters


def select(task: LettersTask, name: str, form: str, **args: Any) -> Any:
    """Search and select; return the run."""
    model_args = {
        "pretrained": str(task.folder / "model"),
        "form": FORMS[form],
        "apart": form == "apart",
        **args,
    }
    return task.run(
        name,
        ["states", "select"],
        ("pool", "audit"),
        model={"args": model_args},
        conditions=["gapft"],
    )


def test_trains_on_the_response_as_generated(task: LettersTask) -> None:
    run = select(task, "as-generated", "thinks")
    tokenizer = AutoTokenizer.from_pretrained(task.folder / "model")
    examples = read_examples(run.path / layout.selection_path(ARM))
    texts = [tokenizer.decode(example.response_ids) for example in examples]
    assert all(text.startswith("<think>aeiou?</think>") for text in texts)
    assert not verify(run.path, plugin_files=task.plugins).differences


def test_refuses_reasoning_without_exact_ids(task: LettersTask) -> None:
    with pytest.raises(UserError, match=r"\b12\b"):
        select(task, "inexact", "apart")
