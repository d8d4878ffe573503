"""lm-eval's own tasks with an overridden data path, and a model with known texts.

Each document has a mark, such as ``[7]``. The mark's number and the response's index determine
whether a response is right and which form its answer has.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import lm_eval
import yaml
from typer.testing import CliRunner, Result

from gapft_harness.cli.main import app
from tests.canned_model import CannedModel, evaluate
from tests.kit.plugins import ANSWERING, build_plugin

_TASKS = Path(lm_eval.__file__).parent / "tasks"
POLICY = Path(__file__).parents[2] / "gapft_harness" / "demo" / "policy"
#: Documents of the evaluated split, and samples of each.
DOCUMENTS, K = 12, 4

_SOURCE = """
import json
import pathlib

from tests.kit.recording_run import InProcessExecutor


class Canned(Answering):
    def generate(self, requests, decoding, report):
        with pathlib.Path(self._args["said"]).with_suffix(".asked").open("a") as file:
            file.writelines(f"{decoding.do_sample} {decoding.temperature}\\n" for _ in requests)
        return super().generate(requests, decoding, report)

    def _write(self, request, index):
        said = json.loads(pathlib.Path(self._args["said"]).read_text())
        return said[max(said, key=request.prompt.rfind)][1 + index]
"""

#: Answers with the file's texts for the last mark of a prompt; runs jobs in this process.
PLUGIN = build_plugin(
    ANSWERING + _SOURCE,
    samplers=['"canned", Canned'],
    executors=['"here", lambda settings, files: InProcessExecutor()'],
)


#: A task of lm-eval that scores options, beside ``gsm8k.yaml``.
CHOICE = """\
include: gsm8k.yaml
task: my_choices
output_type: multiple_choice
doc_to_choice: ["7", "8"]
doc_to_target: 0
metric_list: [{metric: acc}]
filter_list: null
generation_kwargs: null
num_fewshot: 0
"""


@dataclass(frozen=True)
class Stock:
    """One of lm-eval's tasks on local data.

    Attributes:
        file: the YAML, relative to lm-eval's tasks.
        split: the split that is evaluated.
        document: builds a record of the data by number.
        answers: returns a right and a wrong answer by number.
        forms: templates of a response around its answer.
        trains: whether the task has a training split.
    """

    file: str
    split: str
    document: Callable[[int], dict[str, Any]]
    answers: Callable[[int], tuple[str, str]]
    forms: tuple[str, ...]
    trains: bool = True

    def texts(self, number: int) -> list[str]:
        """Return the greedy response to a document, then its samples."""
        right, wrong = self.answers(number)
        return [
            self.forms[(number + index) % len(self.forms)].format(
                right if (number * 7 + index * 5) % 4 == 0 else wrong
            )
            for index in range(K + 1)
        ]


def _build_pears(i: int) -> dict[str, Any]:
    return {"question": f"[{i}] Ann has {i} pears. And twice?", "answer": f"2*{i}\n#### {2 * i}"}


def _double(i: int) -> tuple[str, str]:
    return str(2 * i), str(2 * i + 1)


def _build_drop(i: int) -> dict[str, Any]:
    answer = {
        "number": "",
        "date": {"day": "", "month": "", "year": ""},
        "spans": [f"old town {chr(97 + i)}"],
    }
    none: dict[str, Any] = {"number": [], "date": [], "spans": []}
    return {
        "query_id": str(i), "passage": f"[{i}] The old town.", "question": "Where?",
        "answer": answer, "validated_answers": none,
    }  # fmt: skip


STOCK: Mapping[str, Stock] = {
    "gsm8k": Stock("gsm8k/gsm8k.yaml", "test", _build_pears, _double, ("so\n#### {}", "It is {}")),
    "gsm8k_cot_self_consistency": Stock(
        "gsm8k/gsm8k-cot-self-consistency.yaml",
        "test",
        _build_pears,
        _double,
        ("The answer is {}.", "It is {}, I think"),
    ),
    "hendrycks_math_algebra": Stock(
        "hendrycks_math/hendrycks_math_algebra.yaml",
        "test",
        lambda i: {
            "problem": f"[{i}] Find $\\frac{{{i}}}{{7}}$.",
            "level": "Level 1",
            "type": "Algebra",
            "solution": f"It is $\\boxed{{\\frac{{{i}}}{{7}}}}$.",
        },
        lambda i: (f"{i}/7", f"{i}/8"),
        ("It is ${}$.", "{}"),
    ),
    "triviaqa": Stock(
        "triviaqa/default.yaml",
        "validation",
        lambda i: {"question": f"[{i}] Which town", "answer": {"aliases": [f"Town {i}", f"T{i}"]}},
        lambda i: (f"t{i}", f"village {i}"),
        (" {}", "{}!"),
    ),
    "bbh_cot_fewshot_boolean_expressions": Stock(
        "bbh/cot_fewshot/boolean_expressions.yaml",
        "test",
        lambda i: {"input": f"[{i}] not True is", "target": "False"},
        lambda i: ("False", "True"),
        ("So the answer is {}.", "{}"),
        trains=False,
    ),
    "drop": Stock(
        "drop/default.yaml",
        "validation",
        _build_drop,
        lambda i: (f"old town {chr(97 + i)}", "the old town"),
        ("{}",),
    ),
}


def write_task(
    tasks: Path,
    name: str,
    file: str,
    splits: Mapping[str, Iterable[Mapping[str, Any]]],
    **changes: Any,
) -> None:
    """Write one of lm-eval's tasks with an overridden data path, and its data.

    Args:
        tasks: the folder.
        name: the new task's name.
        file: the YAML, relative to lm-eval's tasks.
        splits: records by the split's name.
        changes: further keys that override the YAML's.
    """
    files = {}
    for split, rows in splits.items():
        data = tasks / f"{name}-{split}.jsonl"
        data.write_text("".join(json.dumps(row) + "\n" for row in rows))
        files[split] = str(data)
    override = {
        "include": str(_TASKS / file),
        "task": name,
        "dataset_path": "json",
        "dataset_name": None,
        "dataset_kwargs": {"data_files": files, "cache_dir": str(tasks / "cache")},
        **changes,
    }
    (tasks / f"{name}.yaml").write_text(yaml.safe_dump(override))


def write_stock(folder: Path) -> Path:
    """Write all tasks with their data, the plugin and the texts; return the tasks' folder."""
    tasks = folder / "tasks"
    tasks.mkdir()
    for name, stock in STOCK.items():
        splits = {
            stock.split: range(DOCUMENTS),
            **({"train": range(100, 120)} if stock.trains else {}),
        }
        rows = {split: map(stock.document, numbers) for split, numbers in splits.items()}
        write_task(tasks, name, stock.file, rows)
        texts = {f"[{i}]": stock.texts(i) for i in range(DOCUMENTS)}
        (folder / f"{name}.json").write_text(json.dumps(texts))
    (folder / "canned.py").write_text(PLUGIN)
    return tasks


def run_gap(folder: Path, task: str, *options: str, out: str = "") -> Result:
    """Run ``gapft gap`` on one of the tasks."""
    return CliRunner().invoke(
        app,
        [
            "gap", "--tasks", task, "--model", "canned",
            *(() if "--k" in options else ("--k", str(K))),
            "--model_args", f"pretrained={POLICY},said={folder / f'{task}.json'}",
            "--include_path", str(folder / "tasks"), "--plugin", str(folder / "canned.py"),
            "--out", str(folder / (out or task)), "--set", "executor.name=here", *options,
        ],
    )  # fmt: skip


def evaluate_texts(folder: Path, task: str, index: int) -> list[dict[str, Any]]:
    """Evaluate one text of each document with lm_eval; return the logged rows."""
    texts = json.loads((folder / f"{task}.json").read_text())
    model = CannedModel(lambda prompt: texts[max(texts, key=prompt.rfind)][index])
    (rows,) = evaluate(model, [task], folder / "tasks", log_samples=True)["samples"].values()
    return list(rows)


@cache
def evaluate_each_response(folder: Path, task: str) -> dict[tuple[str, int], list[dict[str, Any]]]:
    """Evaluate all texts with the stock lm-eval: rows by (filter, doc_id), greedy first.

    Each of the 1 + K responses is evaluated in a separate run of lm-eval.
    """
    rows_by_document: dict[tuple[str, int], list[dict[str, Any]]] = {}
    for index in range(K + 1):
        for row in evaluate_texts(folder, task, index):
            rows_by_document.setdefault((row["filter"], row["doc_id"]), []).append(row)
    return rows_by_document
