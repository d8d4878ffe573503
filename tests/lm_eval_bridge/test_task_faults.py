"""The law of faulty tasks: refused before anything is generated, with the file and the key.

A row changes a sound task; the error must name the file, the key and the wrong value.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from gapft_harness import load_verifier
from gapft_harness.core.errors import UserError
from gapft_harness.lm_eval_bridge.discovery import load_task
from gapft_harness.recipe.sections import Search
from tests.lm_eval_bridge.sums import (
    build_record,
    edit_task,
    load_with_lm_eval,
    write_rows,
    write_sums,
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_sums(tmp_path)
    functions = "def fail(docs): return docs.map(lambda doc: doc['nope'])\n"
    (tmp_path / "utils.py").write_text(functions, encoding="utf-8")
    return tmp_path


def use_task(folder: Path, name: str) -> None:
    """Load a task, read it, and build its decoding, as search does."""
    task = load_task(name, [folder])
    task.read("pool")
    task.read("audit")
    task.build_decoding(Search())
    task.check_golds(load_verifier("boxed_math"), "pool")


def read_error(folder: Path, name: str = "sums") -> str:
    """Return the message of the error from using a task."""
    with pytest.raises(UserError) as caught:
        use_task(folder, name)
    return str(caught.value)


EXAMPLES = "training_split: pool\nnum_fewshot:"
OPTIONS = "{do_sample: false, max_gen_toks: 9, until: []}"

#: A line of the task, its replacement, and words of the error.
FAULTS = [
    # our own keys
    ("verifier: boxed_math, ", "", ["metadata.gapft.verifier"]),
    ("id: name", "keep: [first]", ["metadata.gapft.keep"]),
    ("id: name", "id: \"{{'x'}}\"", ["metadata.gapft.id", "\"{{'x'}}\""]),
    ("id: name", 'id: "{{nmae}}"', ["metadata.gapft.id", "'nmae'"]),
    ("id: name", "gold: answr", ["'answr'"]),
    ("id: name", "gold: {answer: answr}", ["'answr'"]),
    ("id: name", "content: [qestion]", ["gapft.content", "'qestion'"]),
    ("id: name", "gold_only: [hiden]", ["metadata.gapft.gold_only", "'hiden'"]),
    ("id: name", "episode: {attempts: 0}", ["metadata.gapft.episode.attempts"]),
    ("id: name", "episode: {executions: 2}", ["metadata.gapft.episode.executions"]),
    ("gapft:", "gapf:", ["metadata.gapft"]),
    # lm-eval's keys
    ("doc_to_text:", "doc_to_txt:", ["doc_to_text"]),
    ("{{question}}", "{{qestion}}", ["doc_to_text", "'qestion'"]),
    ('"{{answer}}"', "answr", ["'answr'"]),
    ("{{answer}}", "{{1 / 0}}", ["ZeroDivisionError"]),
    ("data_files: {pool", "data_fils: {pool", ["'data_files'"]),
    ("training_split", "repeats: 0\ntraining_split", ["repeats", "found 0"]),
    ("training_split: pool", f"{EXAMPLES} 6", ["num_fewshot", "found 6"]),
    ("training_split: pool", f"{EXAMPLES} 2", ["6 of 6", "'1'", "pool.jsonl, line 1"]),
    ("training_split", "fewshot_config: {smpler: a}\ntraining_split", ["'smpler'"]),
    ("training_split", "process_docs: !function utils.fail\ntraining_split", ["'nope'"]),
    # generation settings that would be ignored, or that conflict with the recipe
    (OPTIONS, "{untill: []}", ["generation_kwargs", "'untill'", "'until'"]),
    (OPTIONS, "{temperature: 0.9}", ["generation_kwargs.temperature", "0.9", "0.7"]),
    (OPTIONS, "{top_k: 50}", ["generation_kwargs.top_k", "50"]),
    (OPTIONS, "{num_beams: 4}", ["generation_kwargs.num_beams", "4"]),
    (OPTIONS, "{max_gen_toks: many}", ["generation_kwargs.max_gen_toks", "'many'"]),
    (OPTIONS, "{until: [3]}", ["generation_kwargs.until", "[3]"]),
]


@pytest.mark.parametrize(("old", "new", "culprits"), FAULTS)
def test_faulty_task_is_refused(old: str, new: str, culprits: list[str], folder: Path) -> None:
    edit_task(folder, old, new)
    message = read_error(folder)
    assert [culprit for culprit in culprits if culprit not in message] == []
    assert str(folder) in message


def test_record_without_a_field_is_named(folder: Path) -> None:
    write_rows(folder / "pool.jsonl", [build_record(0), {"question": "1 + 1?", "answer": "2"}])
    assert "'name'" in read_error(folder)
    write_rows(folder / "pool.jsonl", [build_record(0), {"name": "a", "answer": "2"}])
    message = read_error(folder)
    assert "pool.jsonl, line 2" in message
    assert "'question'" in message


@pytest.mark.thorough
def test_file_that_lm_eval_skips_is_named(folder: Path) -> None:
    file = folder / "sums.yaml"
    file.write_text("task: sums\ndoc_to_text: [a\nmetadata: 3\n", encoding="utf-8")
    for name in ("sums", str(file)):
        message = read_error(folder, name)
        assert str(file) in message
        assert "line 3, column 9" in message
    file.write_text("include: base\ntask: sums\n", encoding="utf-8")
    assert str(folder / "base") in read_error(folder)


# Gold answers


@pytest.mark.parametrize(
    "target",
    ['"{{answer}}"', "answer", '"{{ answer }} "', "\"{{ answer if answer else '' }}\""],
)
@pytest.mark.parametrize("answer", [None, "", " \n"], ids=["null", "empty", "blank"])
def test_empty_target_is_refused(folder: Path, target: str, answer: str | None) -> None:
    edit_task(folder, '"{{answer}}"', target)
    write_rows(folder / "audit.jsonl", [build_record(7), {**build_record(8), "answer": answer}])
    task = load_task("sums", [folder])
    assert task.read("pool")[0].gold.strip() == "1"
    with pytest.raises(UserError, match=r"audit\.jsonl, line 2\b"):
        task.read("audit")
    with pytest.raises(UserError, match=r"audit\.jsonl, line 2\b"):
        load_with_lm_eval(folder).build_all_requests()


@pytest.mark.parametrize("gold", ["answer", '{answer: "{{answer}}"}'])
def test_empty_gold_is_refused(folder: Path, gold: str) -> None:
    edit_task(folder, "id: name", f"gold: {gold}")
    write_rows(folder / "audit.jsonl", [build_record(7), {**build_record(8), "answer": None}])
    with pytest.raises(UserError, match=r"audit\.jsonl, line 2\b"):
        load_task("sums", [folder]).read("audit")


def test_null_beside_an_answer_is_accepted(folder: Path) -> None:
    edit_task(folder, "boxed_math, id: name", "mine, gold: {answer: answer, hidden: hidden}")
    write_rows(folder / "pool.jsonl", [build_record(29, hidden=None)])
    assert load_task("sums", [folder]).read("pool")[0].gold == {"answer": "30", "hidden": None}


def test_lm_eval_checks_golds_before_generation(folder: Path) -> None:
    edit_task(folder, "boxed_math", "option_letter")
    task = load_with_lm_eval(folder)
    with pytest.raises(UserError, match=r"audit\.jsonl, line 1: .*'7'"):
        task.build_all_requests()
    task.override_metric("bypass")  # --predict_only judges nothing.
    task.build_all_requests()
    assert len(task.instances) == 3


# Sound tasks that look faulty


def test_process_docs_may_filter_records(folder: Path) -> None:
    text = "def some(docs): return docs.filter(lambda doc: doc['name'] != 'n3')\n"
    (folder / "utils.py").write_text(text, encoding="utf-8")
    edit_task(folder, "training_split", "process_docs: !function utils.some\ntraining_split")
    assert len(load_task("sums", [folder]).read("pool")) == 5


@pytest.mark.parametrize(
    ("options", "length", "stops"),
    [
        ("do_sample: false, temperature: 0.0, top_p: 1.0, num_beams: 1, until: Q", 256, ("Q",)),
        ("do_sample: true, temperature: 0.7, top_p: 0.95, max_gen_toks: 9, until: []", 9, ()),
        ("max_new_tokens: 7, max_tokens: 8, top_k: -1, until: [a, b]", 7, ("a", "b")),
        ("max_completion_tokens: 5, repetition_penalty: 1.0, until: null", 5, ()),
        # lm-eval's default, a blank line, would cut a chat model after its first paragraph
        ("max_gen_toks: 9", 9, ()),
    ],
)
def test_compatible_generation_settings_are_accepted(
    options: str, length: int, stops: tuple[str, ...], folder: Path
) -> None:
    edit_task(folder, OPTIONS, f"{{{options}}}")
    task = load_task("sums", [folder])
    decoding = task.build_decoding()
    assert (decoding.do_sample, decoding.max_gen_toks, decoding.until) == (False, length, stops)
    shown = task.resolve_config()["generation_kwargs"]["until"]
    assert ([shown] if isinstance(shown, str) else shown) == [*stops], "also for lm_eval"


def test_sampling_of_a_task_must_match_the_recipe(folder: Path) -> None:
    edit_task(folder, "do_sample: false", "do_sample: true, temperature: 1.0, top_k: 20")
    task = load_task("sums", [folder])
    assert task.build_decoding(Search(temperature=1.0, top_k=20)).max_gen_toks == 9
    with pytest.raises(UserError, match=r"search\.temperature"):
        task.build_decoding(Search(top_k=20))


def show_examples(folder: Path, is_right: Callable[[int], bool]) -> None:
    """Write a task whose 40 examples show ``worked``, which is right in some rows."""
    edit_task(
        folder, "training_split: pool", f"{EXAMPLES} 2\nfewshot_config: {{doc_to_target: worked}}"
    )
    rows = [
        build_record(n, worked=f"\\boxed{{{n + 1}}}" if is_right(n) else "?") for n in range(40)
    ]
    write_rows(folder / "pool.jsonl", rows)


def test_one_failing_example_is_accepted(folder: Path) -> None:
    show_examples(folder, bool)
    use_task(folder, "sums")


def test_examples_are_checked_over_the_whole_split(folder: Path) -> None:
    show_examples(folder, lambda row: row < 30)
    assert "4 of 16 checked, such as '?' for" in read_error(folder)


@pytest.mark.parametrize("sampler", ["default", "first_n"])
def test_task_may_list_its_examples(folder: Path, sampler: str) -> None:
    """The listed examples are shown, except the problem itself."""
    first = json.loads((folder / "audit.jsonl").read_text("utf-8").splitlines()[0])
    spare = {"question": "Spare 1?", "answer": "\\boxed{1}"}

    def read_prompts(shots: int, *examples: dict[str, object]) -> list[str]:
        config = json.dumps({"sampler": sampler, "samples": examples})
        edit_task(folder, "training_split: pool", f"{EXAMPLES} {shots}\nfewshot_config: {config}")
        return [problem.prompt for problem in load_task("sums", [folder]).read("audit")]

    prompt, *others = read_prompts(1, spare, first)
    assert prompt.startswith("Spare 1?")
    assert prompt.count(str(first["question"])) == 1
    assert all(other.startswith(("Spare 1?", str(first["question"]))) for other in others)
    assert {p.count("\n\n") for p in read_prompts(2, spare, build_record(77))} == {2}
