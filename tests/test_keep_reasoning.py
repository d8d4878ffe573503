"""Training on answers without the reasoning before them: ``evidence.keep_reasoning``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from transformers import AutoTokenizer

from gapft_harness.core.errors import UserError
from gapft_harness.core.files import write_json
from gapft_harness.core.records import Arm
from gapft_harness.run_directory import layout
from gapft_harness.run_directory.directory import RunDirectory
from gapft_harness.run_directory.tables import read_examples
from gapft_harness.stages.verify.run import verify
from tests.recording_run import LettersTask, write_letters_task
from tests.tiny_models import write_byte_llama

ARM = Arm("gapft", 13)
POOL = 12

#: The text of a response; ``{}``: the answer, as the recording sampler writes it.
FORMS = {
    "thinks": "<think>aeiou?</think>\n\n{}",
    "begun in the prompt": "aeiou?</think>\n\n{}",
    "does not think": "{}",
    "thinks later": "{}\n<think>aeiou?</think>",
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
    ("tuple(request.prompt.encode())", 'self._ids(request.prompt + self._args["opens"])'),
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


@pytest.fixture(scope="module")
def tokenizer(task: LettersTask) -> Any:
    return AutoTokenizer.from_pretrained(task.folder / "model")


def select(task: LettersTask, name: str, form: str, keep_reasoning: bool, **args: Any) -> Any:
    """Search and select; return the run."""
    opens = "<think>\n" if form == "begun in the prompt" else ""
    model_args = {
        "pretrained": str(task.folder / "model"),
        "form": FORMS[form],
        "opens": opens,
        "apart": form == "apart",
        **args,
    }
    return task.run(
        name,
        ["states", "select"],
        ("pool", "audit"),
        model={"args": model_args},
        evidence={"keep_reasoning": keep_reasoning},
        conditions=["gapft"],
        training={"repetitions": 2},
    )


def read_texts(run: RunDirectory, tokenizer: Any) -> list[tuple[str, str]]:
    """Return the prompt and the trained response of each example."""
    return [
        (tokenizer.decode(example.prompt_ids), tokenizer.decode(example.response_ids))
        for example in read_examples(run.path / layout.selection_path(ARM))
    ]


@pytest.mark.parametrize("form", FORMS)
def test_trains_on_the_answer_alone(task: LettersTask, tokenizer: Any, form: str) -> None:
    run = select(task, f"answers-{form.replace(' ', '-')}", form, keep_reasoning=False)
    budget = run.manifest()["budgets"][ARM.name]
    examples = read_texts(run, tokenizer)
    answers = [f"so it is {prompt.partition('? ')[2][0]}!" for prompt, _ in examples]
    expected = {
        "thinks": answers,
        "begun in the prompt": [f"</think>\n\n{answer}" for answer in answers],
        "does not think": answers,
        "thinks later": [FORMS[form].format(answer) for answer in answers],
        "apart": answers,
    }[form]
    # the shortest response ends with one exclamation mark
    assert [response for _, response in examples] == expected
    places = {"does not think": "none", "thinks later": "inseparable"}
    counts = {"removed": 0, "none": 0, "inseparable": 0, places.get(form, "removed"): POOL}
    removed = {
        "thinks": len("<think>aeiou?</think>\n\n"),
        "begun in the prompt": len("aeiou?"),
        "apart": len("aeiou?"),
    }.get(form, 0)
    assert budget["reasoning"] == {**counts, "tokens": POOL * removed}
    lengths = [len(f"{prompt}{response}") for prompt, response in examples]
    assert budget["tokens"] == 2 * (sum(lengths) + POOL)  # with an end token each
    assert budget["supervised_tokens"] == 2 * (sum(map(len, expected)) + POOL)
    assert not verify(run.path, plugin_files=task.plugins).differences


def test_keeps_the_response_as_generated_by_default(task: LettersTask, tokenizer: Any) -> None:
    run = select(task, "as-generated", "thinks", keep_reasoning=True)
    assert all(text.startswith("<think>aeiou?</think>") for _, text in read_texts(run, tokenizer))
    assert "reasoning" not in run.manifest()["budgets"][ARM.name]
    assert not verify(run.path, plugin_files=task.plugins).differences


def test_refuses_reasoning_without_exact_ids(task: LettersTask) -> None:
    with pytest.raises(UserError, match=r"evidence\.keep_reasoning"):
        select(task, "inexact", "apart", keep_reasoning=True)


def test_cut_responses_get_no_end_token(task: LettersTask) -> None:
    """Whether a response ended follows from all its tokens, not from those of the answer."""
    for limit, ended in ((33, False), (99, True)):
        run = task.run(
            f"unknown-{limit}",
            ["states", "select"],
            ("pool", "audit"),
            model={
                "args": {
                    "pretrained": str(task.folder / "model"),
                    "form": FORMS["thinks"],
                    "opens": "",
                    "apart": False,
                    "finish": "unknown",
                }
            },
            search={"max_gen_toks": limit},
            evidence={"keep_reasoning": False},
            conditions=["gapft"],
        )
        examples = read_examples(run.path / layout.selection_path(ARM))
        assert {example.ended for example in examples} == {ended}


def test_changed_setting_selects_again(task: LettersTask, tokenizer: Any) -> None:
    for keep in (True, False, True):
        run = select(task, "changed", "thinks", keep_reasoning=keep)
        thinks = {"think" in text for _, text in read_texts(run, tokenizer)}
        assert thinks == {keep}


def test_verify_finds_changed_counts(task: LettersTask) -> None:
    run = select(task, "tampered", "thinks", keep_reasoning=False)
    manifest = json.loads((run.path / layout.MANIFEST).read_text())
    manifest["budgets"][ARM.name]["reasoning"]["tokens"] += 1
    write_json(run.path / layout.MANIFEST, manifest)
    differences = verify(run.path, plugin_files=task.plugins).differences
    assert any("reasoning" in line for line in differences)


def read_keys(run: RunDirectory, step: str) -> set[str]:
    """Return the keys of the stored groups of a step that the pool's table is made of."""
    made_from = json.loads(json.dumps(run.manifest()["stored"]["pool"]))
    folder = Path(run.path).parent / ".store" / step
    return {name for name in made_from if (folder / name.rpartition("/")[2]).exists()}


def test_think_end_token_changes_verdicts_but_not_responses(task: LettersTask) -> None:
    plain = select(task, "plain", "does not think", keep_reasoning=True)
    ends = select(task, "ends", "does not think", keep_reasoning=True, think_end_token="so")
    assert ends.manifest()["task"]["verifier_params"]["think_end_token"] == "so"
    for step, same in (("generate", True), ("judge", False)):
        groups = [read_keys(run, step) for run in (plain, ends)]
        assert all(groups)
        assert (groups[0] == groups[1]) is same
    assert not verify(ends.path, plugin_files=task.plugins).differences
