"""Faulty tasks: errors name the file, and misspelt keys never pass silently."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gapft_harness import load_verifier
from gapft_harness.core.errors import UserError
from gapft_harness.lm_eval_bridge.discovery import load_task
from gapft_harness.recipe.sections import Search
from tests.kit.command import gapft

YAML = """
task: sums
class: !function gapft_harness.lm_eval_bridge.task.GapTask
dataset_path: json
dataset_kwargs: {data_files: {pool: pool.jsonl, audit: audit.jsonl}}
training_split: pool
test_split: audit
doc_to_text: "{{question}}"
doc_to_target: "{{answer}}"
generation_kwargs: {do_sample: false, max_gen_toks: 9, until: []}
metadata:
  version: 1
  gapft: {verifier: boxed_math, id: name}
"""


def build_record(number: int, **more: object) -> dict[str, object]:
    return {"name": f"n{number}", "question": f"{number} + 1?", "answer": f"{number + 1}", **more}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, numbers in (("pool", range(6)), ("audit", range(6, 9))):
        rows = [
            json.dumps(build_record(n, kind="sum", worked=f"\\boxed{{{n + 1}}}")) for n in numbers
        ]
        (tmp_path / f"{name}.jsonl").write_text("\n".join(rows), encoding="utf-8")
    (tmp_path / "sums.yaml").write_text(YAML, encoding="utf-8")
    functions = "def fail(docs): return docs.map(lambda doc: doc['nope'])\n"
    (tmp_path / "utils.py").write_text(functions, encoding="utf-8")
    return tmp_path


def edit_task(folder: Path, old: str, new: str) -> None:
    assert old in YAML
    (folder / "sums.yaml").write_text(YAML.replace(old, new), encoding="utf-8")


def use_task(folder: Path, name: str) -> None:
    """Load a task, read it, and build its decoding, as search does."""
    task = load_task(name, [folder])
    task.read_pool()
    task.read_audit()
    task.build_decoding(Search())
    task.check_golds(load_verifier("boxed_math"), "pool")


def read_error(folder: Path, name: str = "sums") -> str:
    """Return the message of the error from using a task."""
    with pytest.raises(UserError) as caught:
        use_task(folder, name)
    return str(caught.value)


@pytest.mark.parametrize("benchmark", ["logiqa", "reclor", "math", "livecodebench"])
def test_loader_rejects_misspelt_setting(benchmark: str, tmp_path: Path) -> None:
    """lm-eval passes all of ``metadata`` to a loader; we pass only its settings."""
    base = Path(load_base := f"tasks/{benchmark}/_base_yaml").resolve()
    assert base.is_file(), load_base
    text = f"include: {base}\ntask: mine\ndataset_kwargs: {{revison: abc}}\n"
    (tmp_path / "mine.yaml").write_text(text, encoding="utf-8")
    message = read_error(tmp_path, "mine")
    assert f"({tmp_path / 'mine.yaml'}): " in message
    assert "unexpected keyword argument 'revison'" in message
    (tmp_path / "mine.yaml").write_text(text.replace("revison: abc", ""), encoding="utf-8")
    assert "'revision'" in read_error(tmp_path, "mine")


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("id: name", "id: nmae", "metadata.gapft.id: unknown field 'nmae', and as a template "),
        ("id: name", "id: nmae", "did you mean 'name'?"),
        ("id: name", "id: \"{{'x'}}\"", "metadata.gapft.id: template \"{{'x'}}\": every id"),
        ("id: name", 'id: "{{name[0]}}"', "every id is 'n'; expected different ids"),
        ("id: name", 'id: "{{nmae}}"', "metadata.gapft.id: 'nmae' is undefined"),
        ("id: name", "gold: answr", "unknown field 'answr'"),
        ("id: name", "gold: {answer: answr}", "unknown field 'answr'"),
        ("id: name", "gold: {answer: 3}", "input should be a valid string; found 3"),
        ("id: name", "content: [qestion]", "gapft.content: unknown field 'qestion'; did you "),
        ("id: name", "gold_only: [hiden]", "metadata.gapft.gold_only: unknown field 'hiden'"),
        ("id: name", "content: [1]", "key 'metadata.gapft.content.0': input should be a valid str"),
        ("id: name", "verifer: x", "unknown key 'metadata.gapft.verifer'; did you mean"),
        (
            "id: name",
            "episode: {executions: 2}",
            "key 'metadata.gapft.episode.executions': must be",
        ),
        ("id: name", "episode: {attempts: true}", "key 'metadata.gapft.episode.attempts': input"),
        ("gapft:", "gapf:", "key 'metadata.gapft': expected a section with keys such as verifier"),
        ("{{question}}", "{{qestion}}", "doc_to_text: 'qestion' is undefined"),
        ('"{{question}}"', "qestion", "doc_to_text: unknown field 'qestion'"),
        ('"{{answer}}"', "answr", "unknown field 'answr'"),
        ("{{answer}}", "{{answer}", "TemplateSyntaxError: unexpected '}'"),
        ("{{answer}}", "{{1 / 0}}", "ZeroDivisionError"),
        ("test_split: audit", "test_split: adit", "unknown split 'adit'; did you mean 'audit'?"),
        ("training_split: pool", "training_split: pol", "unknown split 'pol'"),
        ("training_split: pool", "", "the key training_split is missing"),
        ("test_split: audit", "", "must have valid or test docs"),
        ("data_files: {pool", "data_fils: {pool", "the key 'data_files' is missing"),
        ("l}}", "l}, splt: a}", "'splt'"),
        (
            "test_split: audit",
            "test_split: audit\ntest_split: a",
            "line 8, column 1: duplicate key 'test_sp",
        ),
        (
            "training_split",
            "num_fewshot: two\ntraining_split",
            "num_fewshot: found 'two', expected ",
        ),
        (
            "training_split",
            "repeats: 0\ntraining_split",
            "repeats: found 0, expected a whole number",
        ),
        ("training_split", "fewshot_config: {smpler: a}\ntraining_split", "'smpler'"),
        ("training_split", "fewshot_config: {sampler: first_m}\ntraining_split", "'first_m'"),
        ("do_sample: false", "temperature: warm", "could not convert string to float: 'warm'"),
        ('doc_to_text: "{{question}}"\n', "", "the key 'doc_to_text' is missing"),
        ("training_split", "process_docs: !function utils.fail\ntraining_split", "'nope'"),
        ("task: sums", "task: sums\noutput_type: generate", "invalid output_type 'generate'"),
    ],
)
def test_error_names_file(old: str, new: str, expected: str, folder: Path) -> None:
    edit_task(folder, old, new)
    message = read_error(folder)
    assert expected in message
    assert str(folder / "sums.yaml") in message


def test_process_docs_may_filter_records(folder: Path) -> None:
    text = "def some(docs): return docs.filter(lambda doc: doc['name'] != 'n3')\n"
    (folder / "utils.py").write_text(text, encoding="utf-8")
    edit_task(folder, "training_split", "process_docs: !function utils.some\ntraining_split")
    assert len(load_task("sums", [folder]).read_pool()) == 5


def test_accepts_repeated_ids_of_data(folder: Path) -> None:
    edit_task(folder, "id: name", "id: kind")
    assert [problem.id[:4] for problem in load_task("sums", [folder]).read_pool()] == ["sum-"] * 6


def test_rejects_record_without_id_field(folder: Path) -> None:
    rows = [build_record(0), {"question": "1 + 1?", "answer": "2"}]
    (folder / "pool.jsonl").write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    assert "metadata.gapft.id: unknown field 'name'" in read_error(folder)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ("untill: []", "generation_kwargs: unknown key 'untill'; did you mean 'until'?"),
        ("temprature: 0.7", "unknown key 'temprature'; did you mean 'temperature'?"),
        ("max_gen_tok: 9", "unknown key 'max_gen_tok'; did you mean 'max_gen_toks'?"),
        ("temperature: 0.9", "generation_kwargs.temperature: found 0.9, expected 0.7"),
        ("temperature: 0.9", "set search.temperature to 0.9"),
        ("top_p: 0.5", "generation_kwargs.top_p: found 0.5"),
        ("top_k: 50", "generation_kwargs.top_k: found 50"),
        ("num_beams: 4", "generation_kwargs.num_beams: found 4, which gapft run does not support"),
        ("repetition_penalty: 1.2", "generation_kwargs.repetition_penalty: found 1.2"),
        ("do_sample: true", "generation_kwargs.do_sample: found true without a temperature"),
        ("max_gen_toks: many", "generation_kwargs.max_gen_toks: found 'many', expected a whole"),
        ("max_new_tokens: 0", "generation_kwargs.max_new_tokens: found 0, expected a whole number"),
        ("until: [3]", "generation_kwargs.until: found [3], expected a list of stop strings"),
    ],
)
def test_rejects_conflicting_generation_settings(options: str, expected: str, folder: Path) -> None:
    edit_task(folder, "{do_sample: false, max_gen_toks: 9, until: []}", f"{{{options}}}")
    message = read_error(folder)
    assert expected in message
    assert str(folder / "sums.yaml") in message


@pytest.mark.parametrize(
    ("options", "length", "stops"),
    [
        ("do_sample: false, temperature: 0.0, top_p: 1.0, num_beams: 1, until: Q", 256, ("Q",)),
        ("do_sample: true, temperature: 0.7, top_p: 0.95, max_gen_toks: 9, until: []", 9, ()),
        ("max_new_tokens: 7, max_tokens: 8, top_k: -1, until: [a, b]", 7, ("a", "b")),
        ("max_completion_tokens: 5, repetition_penalty: 1.0, until: null", 5, ()),
    ],
)
def test_accepts_compatible_generation_settings(
    options: str, length: int, stops: tuple[str, ...], folder: Path
) -> None:
    edit_task(folder, "{do_sample: false, max_gen_toks: 9, until: []}", f"{{{options}}}")
    decoding = load_task("sums", [folder]).build_decoding()
    assert (decoding.do_sample, decoding.max_gen_toks, decoding.until) == (False, length, stops)


def test_task_sampling_must_match_recipe(folder: Path) -> None:
    edit_task(folder, "do_sample: false", "do_sample: true, temperature: 1.0, top_k: 20")
    task = load_task("sums", [folder])
    assert task.build_decoding(Search(temperature=1.0, top_k=20)).max_gen_toks == 9
    with pytest.raises(
        UserError, match=r"temperature: found 1\.0, expected 0\.7 \(search\.temperature"
    ):
        task.build_decoding(Search(top_k=20))


def test_rejects_examples_that_verifier_fails(folder: Path) -> None:
    edit_task(folder, "training_split: pool", "training_split: pool\nnum_fewshot: 2")
    message = read_error(folder)
    assert "the task's own verifier does not pass the answers of few-shot examples" in (message)
    assert f"6 of 6 checked, such as '1' for {folder / 'pool.jsonl'}, line 1" in message
    assert "(fail: no box)" in message
    lines = "training_split: pool\nnum_fewshot: 2\nfewshot_config: {doc_to_target: worked}"
    edit_task(folder, "training_split: pool", lines)
    task = load_task("sums", [folder])
    assert "\\boxed{" in task.read_audit()[0].prompt
    task.check_golds(load_verifier("boxed_math"), "audit")


def test_accepts_single_failing_example(folder: Path) -> None:
    lines = "training_split: pool\nnum_fewshot: 2\nfewshot_config: {doc_to_target: worked}"
    edit_task(folder, "training_split: pool", lines)
    rows = [build_record(n, worked=f"\\boxed{{{n + 1}}}" if n else "?") for n in range(40)]
    (folder / "pool.jsonl").write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    task = load_task("sums", [folder])
    task.read_audit()
    task.check_golds(load_verifier("boxed_math"), "audit")


@pytest.mark.parametrize("name", ["pool", "audit"])
def test_names_data_file_without_fields(folder: Path, name: str) -> None:
    (folder / f"{name}.jsonl").write_text('\n{"problem": "1 + 1?", "solution": "2"}\n')
    message = read_error(folder)
    assert f"{folder / name}.jsonl, line 2" in message
    for words in (str(folder / "sums.yaml"), "doc_to_text", "'question'"):
        assert words in message


def test_rejects_missing_examples(folder: Path) -> None:
    edit_task(folder, "training_split: pool", "training_split: pool\nnum_fewshot: 6")
    assert "num_fewshot: found 6, but only 5 examples" in read_error(folder)
    listed = "num_fewshot: 1\nfewshot_config: {samples: [five]}"
    edit_task(folder, "training_split: pool", f"training_split: pool\n{listed}")
    assert "fewshot_config.samples" in read_error(folder)


@pytest.mark.parametrize("sampler", ["default", "first_n"])
def test_task_may_list_examples(folder: Path, sampler: str) -> None:
    """The listed examples are shown, except the problem itself."""
    first = json.loads((folder / "audit.jsonl").read_text("utf-8").splitlines()[0])
    spare = {"question": "Spare 1?", "answer": "\\boxed{1}"}
    write_examples(folder, sampler, 1, [spare, first])
    problem, *others = load_task("sums", [folder]).read_audit()
    assert problem.prompt.startswith("Spare 1?")
    assert problem.prompt.count(str(first["question"])) == 1
    for other in others:
        assert other.prompt.startswith(("Spare 1?", str(first["question"])))
    write_examples(folder, sampler, 2, [spare, build_record(77)])
    for problem in load_task("sums", [folder]).read_audit():
        assert problem.prompt.count("\n\n") == 2


def write_examples(folder: Path, sampler: str, shots: int, rows: list[dict[str, object]]) -> None:
    config = json.dumps({"sampler": sampler, "samples": rows})
    lines = f"num_fewshot: {shots}\nfewshot_config: {config}"
    edit_task(folder, "training_split: pool", f"training_split: pool\n{lines}")


@pytest.mark.parametrize(
    ("name", "answer_start"),
    [
        ("gapft_demo", "\\boxed{"),
        ("gapft_demo_pool", "\\boxed{"),
        ("gapft_demo_code_pool", "```python\n"),
    ],
)
def test_bundled_tasks_show_verified_answers(name: str, answer_start: str) -> None:
    """Set the examples after the task is built, as the stock command does."""
    from lm_eval.tasks import TaskManager

    folder = str(Path("tasks").resolve())
    task = TaskManager(include_defaults=False, include_path=[folder]).load([name])["tasks"][name]
    task.set_config("num_fewshot", 3)
    task.set_fewshot_seed(1)
    task.build_all_requests(limit=2)
    for instance in task.instances:
        assert instance.args[0].count(answer_start) == 3


STOCK = """
task: plain
dataset_path: json
dataset_kwargs: {data_files: {pool: POOL}}
training_split: pool
test_split: pool
doc_to_text: "{{question}}"
doc_to_target: "{{answer}}"
generation_kwargs: {until: ["Q"], max_gen_toks: 5, do_sample: false}
metric_list: [{metric: exact_match, aggregation: mean, higher_is_better: true}]
"""


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("training_split: pool", "training_split: pol", "'pol'"),
        ("test_split: pool", "test_split: pol", "'pol'"),
        ("test_split: pool", "", "must have valid or test docs"),
        ("{{question}}", "{{qestion}}", "'qestion' is undefined"),
        ("data_files", "data_fils", "the key 'data_files' is missing"),
        ("}}", "}, revison: a}", "'revison'"),
        ("training_split", "doc_to_txt: a\ntraining_split", "'doc_to_txt'"),
        ("{pool: POOL}", "{pool: none.jsonl}", "FileNotFoundError: Unable to find"),
        ("until:", "untill:", "generation_kwargs: unknown key 'untill'; did you mean 'until'?"),
    ],
)
def test_stock_task_error_names_file(
    old: str, new: str, expected: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", folder / "cache")
    assert old in STOCK
    text = STOCK.replace(old, new).replace("POOL", str(folder / "pool.jsonl"))
    (folder / "plain.yaml").write_text(text, encoding="utf-8")
    message = read_error(folder, "plain")
    assert expected in message
    assert str(folder / "plain.yaml") in message


def test_names_file_that_lm_eval_skips(folder: Path) -> None:
    file = folder / "sums.yaml"
    file.write_text("task: sums\ndoc_to_text: [a\nmetadata: 3\n", encoding="utf-8")
    for name in ("sums", str(file)):
        message = read_error(folder, name)
        assert str(file) in message
        assert "line 3, column 9" in message
    file.write_text("include: base\ntask: sums\n", encoding="utf-8")
    assert f"No such file or directory: '{folder / 'base'}'" in read_error(folder)


def test_command_prints_one_line(folder: Path) -> None:
    edit_task(folder, "max_gen_toks: 9", "max_gen_tok: 9")
    arguments = ["--task", "sums", "--model-args", "pretrained=bundled:demo"]
    done = gapft("run", *arguments, "--include-path", ".", cwd=folder)
    assert done.returncode == 2
    (line,) = [line for line in done.stderr.splitlines() if line.startswith("gapft: ")]
    assert "sums.yaml): generation_kwargs: unknown key 'max_gen_tok'; did you mean" in line
    assert "Traceback" not in done.stderr
    assert not (folder / "runs").exists() or not list((folder / "runs").iterdir())
