"""The law of user mistakes, for all commands.

A mistake exits with status 2, prints one line that names the culprit, and leaves no file. A new
mistake needs a row in ``MISTAKES``; a new command needs at least one row.
"""

from __future__ import annotations

import gzip
import json
import shlex
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml

from gapft_harness.cli.main import app
from gapft_harness.hooks.registration import find_hook
from gapft_harness.recipe.reading import check_recipe
from gapft_harness.run_directory.directory import RunDirectory
from tests.compare.logs import row
from tests.kit import command
from tests.kit.local_tasks import build_task
from tests.kit.recording_run import IN_PROCESS_PLUGIN
from tests.kit.runs import RunAt

#: Logs of the demo's model before and after training, by their name in the words of a command.
LOGS = {
    word: str(command.ROOT / f"gapft_harness/demo/logs/{word.lower()}")
    for word in ("BEFORE", "AFTER")
}

RECIPE: dict[str, Any] = {
    "name": "r",
    "data": {"task": "gapft_demo"},
    "model": {"args": {"pretrained": "bundled:demo"}},
}
STUDY: dict[str, Any] = {
    "name": "s",
    "cells": {"A": {"recipe": "demo"}},
    "conditions": ["gapft", "uniform"],
    "reference": "uniform",
    "seeds": [13, 21],
}


@dataclass(frozen=True)
class Mistake:
    """A command with a mistake.

    Attributes:
        words: the command.
        culprits: what the line must contain: the key or option, and where it was found.
        files: additional files by name: text, bytes, or the content of a YAML file.
    """

    words: tuple[str, ...]
    culprits: tuple[str, ...]
    files: Mapping[str, Any] = field(default_factory=dict)


def call(text: str, *culprits: str, **files: Any) -> Mistake:
    """Describe a mistake in the words of a command."""
    return Mistake(tuple(LOGS.get(word, word) for word in shlex.split(text)), culprits, files)


def in_option(words: str, *culprits: str, **files: Any) -> Mistake:
    """Describe a mistake in options of ``gapft run``; the line must repeat the first culprit."""
    return call(f"run recipe.yaml --run-dir out {words}", *culprits, **files)


def for_plugins(change: str, *culprits: str) -> Mistake:
    """Describe a mistake in sections of a recipe that only plugins or experiments recognize."""
    recipe = {**RECIPE, **yaml.safe_load(change)}
    return in_option("", *culprits, **{"recipe.yaml": recipe})


def in_recipe(change: str, key: str, *more: str) -> Mistake:
    """Describe a mistake in sections of a recipe; the line must name its file and the key."""
    return for_plugins(change, "recipe.yaml", f"'{key}'", *more)


def in_text(recipe: str | bytes, *culprits: str) -> Mistake:
    """Describe a mistake in the text of a recipe."""
    return in_option("", *culprits, **{"recipe.yaml": recipe})


def in_online(words: str, *culprits: str) -> Mistake:
    """Describe a mistake in options of a run that trains online."""
    return call(f"run controls/online --dry-run {words}", *culprits)


#: Options of a command that starts jobs: they run in the process of the test.
IN_PROCESS = "--plugin here.py --set executor.name=here"


def in_data(words: str, *culprits: str) -> Mistake:
    """Describe a mistake in options of ``gapft run`` that is found when the data are read."""
    return in_option(f"{words} {IN_PROCESS}", *culprits)


def in_study(change: str, *culprits: str) -> Mistake:
    """Describe a mistake in sections of a study."""
    study = {**STUDY, **yaml.safe_load(change)}
    words = "run study.yaml --dry-run --run-dir out"
    return call(words, "study.yaml", *culprits, **{"study.yaml": study})


def in_policy(text: str, *culprits: str) -> Mistake:
    """Describe a mistake in a policy's file, which the line must name."""
    words = "compare BEFORE AFTER --policy policy.yaml"
    return call(words, "policy.yaml", *culprits, **{"policy.yaml": text})


def in_plugin(source: str, *culprits: str) -> Mistake:
    """Describe a mistake in a plugin's file, which the line must name."""
    source = f"from gapft_harness.api import hookimpl\n\n\n{source}"
    return call("list plugins --plugin mine.py", "mine.py", *culprits, **{"mine.py": source})


def in_hook(source: str, *culprits: str) -> Mistake:
    """Describe a mistake in a hook of a plugin."""
    return in_plugin(f"@hookimpl\ndef {source}\n", *culprits)


def in_registration(kind: str, arguments: str, *culprits: str) -> Mistake:
    """Describe a mistake in the arguments of ``register``."""
    return in_hook(f"{find_hook(kind)}(register):\n    register({arguments})", kind, *culprits)


def for_logs(options: str, *culprits: str, **files: Any) -> Mistake:
    """Describe a mistake in options of ``gapft compare``."""
    return call(f"compare {options}", *culprits, **files)


def in_file(name: str, content: str | bytes, *culprits: str) -> Mistake:
    """Describe a file that is not a log, which the line must name."""
    return for_logs(f"before.jsonl {name}", name, *culprits, **{name: content})


def in_log(rows: Sequence[Mapping[str, Any]], *culprits: str, options: str = "") -> Mistake:
    """Describe a mistake in the rows of a log after, which the line must name."""
    words = f"before.jsonl after.jsonl {options}"
    return for_logs(words, "after.jsonl", *culprits, **{"after.jsonl": format_log(rows)})


def in_samples(rows: Sequence[Mapping[str, Any]], *culprits: str) -> Mistake:
    """Describe a mistake in the rows of a log of source samples, which the line must name."""
    words = "before.jsonl before.jsonl --source-samples samples.jsonl"
    return for_logs(words, "samples.jsonl", *culprits, **{"samples.jsonl": format_log(rows)})


def format_log(rows: Sequence[Mapping[str, Any]]) -> str:
    return "".join(f"{json.dumps(line)}\n" for line in rows)


def change_row(number: int, **changes: Any) -> list[dict[str, Any]]:
    """Return the rows of a good log with one changed row."""
    return [line | changes if n == number else line for n, line in enumerate(ROWS)]


def list_verdicts(number: int, *statuses: str) -> dict[str, Any]:
    """Return a row with a verdict on each of several responses."""
    return row(number, 0, verdicts=[{"status": status} for status in statuses])


#: Options of a command that uses a task of the folder, without a model.
DUMMY = f"--model dummy --model-args pretrained=none --include-path tasks {IN_PROCESS}"


def with_task(old: str, new: str, *culprits: str, audit: str = "") -> Mistake:
    """Describe a mistake in a changed task, or in the data of its audit."""
    assert old in TASK
    files = {"tasks/sums.yaml": TASK.replace(old, new)}
    files |= {"tasks/audit.jsonl": audit} if audit else {}
    return call(f"gap sums {DUMMY}", *culprits, **files)


def in_task(old: str, new: str, *culprits: str) -> Mistake:
    """Describe a mistake in a task's YAML file, which the line must name."""
    return with_task(old, new, "sums.yaml", *culprits)


def for_task(words: str, *culprits: str) -> Mistake:
    """Describe a mistake in a command that uses one of lm-eval's tasks."""
    files = {"tasks/stock.yaml": STOCK, "tasks/choice.yaml": CHOICE, "tasks/trained.yaml": TRAINED}
    return call(f"{words} {DUMMY}", *culprits, **files)


#: The ending of a log's name: its time.
TIMED = "2026-01-01T00-00-00.1"
#: Rows of a good log.
ROWS = [row(number, 1) for number in range(4)]
#: Files that are in the folder of every command; some of them are mistakes.
FILES: Mapping[str, Any] = {
    "recipe.yaml": RECIPE,
    "study.yaml": STUDY,
    "f.json": "{}\n",
    "here.py": IN_PROCESS_PLUGIN,
    "before.jsonl": format_log([row(number, number % 2) for number in range(4)]),
    "better.jsonl": format_log(ROWS),
    "one.jsonl": format_log(ROWS[:1]),
    "many.jsonl": format_log([row(number, 0) for number in range(1200)]),
    "kk.yaml": {**RECIPE, "search": {"kk": 3}},
    "uniform.yaml": {**RECIPE, "conditions": {"c": {"selector": "uniform"}}},
    "attempts.yaml": "name: s\ncells:\n  a: {recipe: demo}\n"
    "  b: {recipe: demo, set: {data.task: gapft_demo_code}}\n",
    "broken.py": "import nothing_here\n",
    "begun/recipe.yaml": "name: x\n",
    "done/comparison.html": "",
    "blank.jsonl": "\n",
    "empty.jsonl": format_log(change_row(0, metrics=[])),
    "odd.jsonl": format_log(change_row(0, doc={"question": "q0", "x\n\x1b[2J": 1})),
    "range.jsonl": format_log(change_row(1, exact_match=3.5)),
    "silent.jsonl": format_log([row(0, 1), {"doc": {}, "filter": "none", "metrics": []}]),
    "target.jsonl": format_log([row(0, 1, target="Z9")]),
    "ungraded.jsonl": format_log([row(n, 0, metrics=["bypass"], bypass=999) for n in range(4)]),
    **{f"{name}_{TIMED}.jsonl": format_log(ROWS) for name in ("t/samples_toy", "o/samples_other")},
    **{f"two/samples_toy_{time}.jsonl": format_log(ROWS) for time in (TIMED, "2027" + TIMED[4:])},
    f"c/samples_toy_{TIMED}.jsonl": format_log(ROWS),
    f"c/results_{TIMED}.json": '{"results": {"toy": {"exact_match,none": 0.25}}}',
    "tasks/pool.jsonl": '{"question": "1+1?", "answer": "2"}\n' * 3,
    "tasks/audit.jsonl": '{"question": "2+2?", "answer": "4"}\n{"question": "3?", "answer": "3"}\n',
}
TASK = build_task("sums", "verifier: boxed_math, keep: shortest")
#: A task of lm-eval without a training split, and one that scores options.
STOCK = """\
task: stock
dataset_path: json
dataset_kwargs: {data_files: {test: tasks/audit.jsonl}}
test_split: test
output_type: generate_until
doc_to_text: "{{question}}"
doc_to_target: "{{answer}}"
filter_list:
  - {name: strict-match, filter: [{function: regex, regex_pattern: "(.)"}, {function: take_first}]}
metric_list: [{metric: exact_match, aggregation: mean, higher_is_better: true}]
metadata: {version: 1}
"""
TRAINED = """\
include: stock.yaml
task: trained
dataset_kwargs: {data_files: {train: tasks/pool.jsonl, test: tasks/audit.jsonl}}
training_split: train
"""
CHOICE = """\
task: choice
dataset_path: json
dataset_kwargs: {data_files: {train: tasks/pool.jsonl, test: tasks/audit.jsonl}}
training_split: train
test_split: test
output_type: multiple_choice
doc_to_text: "{{question}}"
doc_to_choice: ["7", "8"]
doc_to_target: 0
metric_list: [{metric: acc}]
metadata: {version: 1}
"""

#: The nearest key or name comes after the wrong one.
MISTAKES = {
    "file: empty file": in_text("", "recipe.yaml"),
    "file: date that does not exist": in_text("name: 2020-13-01\n", "recipe.yaml", "month"),
    "file: no YAML": in_text("a: [1\n", "recipe.yaml", "line 2"),
    "file: key twice": in_text("seeds: [1]\nseeds: [2]\n", "line 2", "'seeds'"),
    "file: encoding": in_text(b"name: r\nx: caf\xe9\n", "recipe.yaml", "line 2"),
    "study: invisible cell": in_study("cells: {A \u202e: {run: x}}", "cells"),
    "study: long cell": in_study(f"cells: {{{'n' * 300}: {{run: x}}}}", "cells"),
    "plugin: failure on import": in_plugin("raise RuntimeError('broken')\n", "RuntimeError"),
    "plugin: exit on import": in_plugin("raise SystemExit(0)\n", "SystemExit"),
    "plugin: syntax": in_plugin("def f(:\n", "line 4"),
    "plugin: no hook": in_plugin("x = 1\n"),
    "plugin: misspelt hook": in_hook(
        "register_selector(register):\n    pass", "'register_selectors'"
    ),
    "plugin: misspelt argument of a hook": in_hook(
        "register_selectors(registry):\n    pass", "registry"
    ),
    "plugin: failing hook": in_hook(
        "register_selectors(register):\n    1 / 0", "register_selectors", "ZeroDivisionError"
    ),
    "log: text for a number": in_log(change_row(2, exact_match="1"), "line 3", "'exact_match'"),
    "log: no finite sum": in_log(change_row(1, exact_match=1e300), "line 2", "'exact_match'"),
    "log: NaN": in_log(change_row(1, exact_match=float("nan")), "line 2", "'exact_match'"),
    "log: null": in_log(change_row(1, exact_match=None), "line 2", "'exact_match'"),
    "log: no document": in_log([*ROWS[:3], {"filter": "none", "metrics": ["x"]}], "line 4", "doc"),
    "log: document twice": in_log([*ROWS, ROWS[1]], "line 5", "doc_id 1"),
    "log: missing document": in_log(ROWS[:3]),
    "log: additional document": in_log([*ROWS, row(9, 1)], "line 5", "doc_id 9"),
    "log: other filter": in_log([line | {"filter": "strict"} for line in ROWS], "'none'", "strict"),
    "log: control characters": for_logs(
        "odd.jsonl odd.jsonl --by '\x1b[31mnope'", "odd.jsonl, line 1", repr("x\n\x1b[2J")
    ),
    "log: ambiguous documents": in_log(
        [line | {"doc_id": 0} for line in ROWS], "--on", options="--on passage"
    ),
    "log: truncated": in_file("after.jsonl", format_log(ROWS)[:-30], "line 4"),
    "log: encoding": in_file("after.jsonl", b'{"doc_id": \xff}\n', "line 1"),
    "log: list": in_file("after.jsonl", "[1]\n", "line 1"),
    "log: empty": in_file("after.jsonl", ""),
    "log: format of no reader": in_file("after.csv", "question,right\n", "line 1"),
    "log: compressed, truncated": in_file(
        "after.jsonl.gz", gzip.compress(format_log(ROWS).encode())[:-30]
    ),
    "log: lighteval, no Parquet": in_file("details_x.parquet", b"x"),
    "log: Inspect, no archive": in_file("log.eval", b"x"),
    "log: samples, missing document": in_samples(
        [list_verdicts(n, "pass", "fail") for n in range(3)]
    ),
    "log: samples, uneven": in_samples(
        [list_verdicts(n, "pass", *["fail"] * (n < 3)) for n in range(4)], "line 4"
    ),
    "log: samples, impossible rate": in_samples(
        [row(n, 0, resps=[[*"abc"]], **{"pass@1": 0.4}) for n in range(4)], "line 1", "pass@1"
    ),
    "log: samples, part of a verdict": in_samples(
        [row(n, 0.5) for n in range(4)], "line 1", "exact_match"
    ),
    "log: samples, several responses": in_samples(
        [row(n, 1, resps=[["a"] * 8]) for n in range(4)], "line 1", "exact_match"
    ),
    "log: samples, too few verdicts": in_samples(
        [list_verdicts(n, "pass") | {"resps": [["a", "b"]]} for n in range(4)], "line 1"
    ),
    "log: samples, no verdict later": in_samples(
        [list_verdicts(0, "pass"), *ROWS[1:]], "no samples of 3 of 4"
    ),
    "task: golds that the verifier cannot read": with_task(
        "boxed_math",
        "option_letter",
        "audit.jsonl",
        "line 1",
        audit='{"question": "2+2?", "answer": "4"}\n',
    ),
    "task: malformed data": with_task("", "", "audit.jsonl", audit='{"question": "2+2?"\n'),
    "recipe: misspelt section": in_recipe("serach: {k: 2}", "serach", "'search'"),
    "recipe: misspelt key": in_recipe("search: {kk: 2}", "search.kk", "'search.k'"),
    "recipe: key without its section": in_recipe("k: 2", "k", "'search.k'"),
    "recipe: range": in_recipe("seeds: 9-3", "seeds"),
    "recipe: seed twice": in_recipe("seeds: [13, 13]", "seeds"),
    "recipe: misspelt tracker": in_recipe("tracker: tensorbord", "tracker", "'tensorboard'"),
    "recipe: value for a section": in_recipe("search: 3", "search"),
    "recipe: unknown number of slots": in_recipe("budget: {n: all}", "budget.n"),
    "recipe: quoted number": in_recipe("search: {k: '8'}", "search.k"),
    "recipe: no samples": in_recipe("search: {k: 0}", "search.k"),
    "recipe: no task": in_recipe("data: {}", "data.task"),
    "recipe: no model": in_recipe("model: {args: {dtype: float32}}", "model.args", "pretrained"),
    "recipe: end of thoughts": in_recipe(
        "model: {args: {pretrained: m, think_end_token: 151668}}", "model.args", "think_end_token"
    ),
    "recipe: thinking twice": in_recipe(
        "model: {args: {pretrained: m, enable_thinking: true, "
        "chat_template_args: {enable_thinking: false}}}",
        "model.args",
        "chat_template_args",
    ),
    "recipe: file in GGUF's format": in_recipe(
        "model: {args: {pretrained: a/m.gguf}}", "model.args", "GGUF"
    ),
    "recipe: path as a name": in_recipe("name: a/b", "name"),
    "recipe: more update groups than exposures": in_recipe(
        "{budget: {n: 21, replay: 10}, training: {update_groups: 64, repetitions: 2}}",
        "training",
        "update_groups",
    ),
    "recipe: no conditions": in_recipe("conditions: []", "conditions"),
    "recipe: two conditions in one item": in_recipe("conditions: [{a: {}, b: {}}]", "conditions"),
    "recipe: condition twice": in_recipe("conditions: [a, a: {}]", "conditions"),
    "recipe: value for a condition": in_recipe("conditions: {c: uniform}", "conditions.c"),
    "recipe: condition above the folder": in_recipe(
        "conditions: {../c: {}}", "conditions", "'../c'"
    ),
    "recipe: condition named as the source": in_recipe(
        "conditions: {source: {selector: uniform}}", "conditions", "'source'"
    ),
    "recipe: more samples than the search's": in_recipe(
        "conditions: {c: {selector: gapft, k: 9}}", "conditions.c.k", "search.k"
    ),
    "recipe: misspelt training": in_recipe(
        "conditions: {c: {selector: gapft, training: {rnak: 4}}}",
        "conditions.c.training.rnak",
        "rank",
    ),
    "recipe: start tokens without the model's": in_recipe(
        "conditions: {c: {selector: gapft, training: {start_tokens: 1}}}",
        "conditions.c.training",
        "start_tokens",
    ),
    "recipe: misspelt selector": for_plugins(
        "conditions: {c: {selector: gapf}}", "'gapf'", "'gapft'"
    ),
    "recipe: missing parameter": for_plugins(
        "conditions: {c: {selector: search_depth}}",
        "'conditions.c.params'",
        "'search_depth'",
        "'k'",
    ),
    "recipe: unknown parameter": for_plugins(
        "conditions: {c: {selector: search_depth, params: {k: 1, depth: 1}}}",
        "'conditions.c.params'",
        "'depth'",
    ),
    "recipe: slots as a parameter": for_plugins(
        "conditions: {c: {selector: repeated, params: {times: 2, n: 3}}}",
        "'conditions.c.params'",
        "'n'",
    ),
    "recipe: slots of a reference": for_plugins(
        "conditions: {c: {selector: all_verified, n: 4}}", "'conditions.c.n'", "'all_verified'"
    ),
    "recipe: control with other settings": for_plugins(
        "{conditions: {whole: {selector: search_depth, params: {k: 1}}, "
        "depth: {selector: search_depth, params: {k: 4}, k: 4}}, experiments: {search_depth: {}}}",
        "'whole'",
        "'depth'",
    ),
    "recipe: odd slots of two halves": for_plugins(
        "{budget: {n: 47}, conditions: [diffuse, concentrated], "
        "experiments: {allocation: {diffuse: diffuse, concentrated: concentrated}}}",
        "'experiments.allocation'",
        "budget.n",
    ),
    "recipe: unknown condition of an experiment": for_plugins(
        "experiments: {allocation: {diffuse: gapft, concentrated: more}}",
        "'experiments.allocation.concentrated'",
        "'more'",
    ),
    "recipe: experiment with one condition twice": for_plugins(
        "experiments: {allocation: {diffuse: gapft, concentrated: gapft}}",
        "'experiments.allocation'",
        "'gapft'",
    ),
    "recipe: scales of replayed responses": for_plugins(
        "{model: {backend: recorded, args: {pretrained: 'bundled:demo', responses: r.jsonl}}, "
        "experiments: {scaling: {calibration: 8}}}",
        "'experiments.scaling'",
        "'recorded'",
    ),
    "recipe: misspelt experiment": for_plugins("experiments: {scop: {}}", "'scop'", "'scope'"),
    "recipe: unknown key of an experiment": for_plugins(
        "experiments: {search_depth: {draws: 1}}", "'experiments.search_depth.draws'"
    ),
    "recipe: text for a number of an experiment": for_plugins(
        "experiments: {search_depth: {permutations: '50'}}",
        "'experiments.search_depth.permutations'",
    ),
    "option: key": in_option("--set search.kk=3", "--set search.kk=3", "'search.kk'", "'search.k'"),
    "option: key in a value": in_option(
        "--set 'search={kk: 3}'", "--set search={kk: 3}", "'search.kk'"
    ),
    "option: key below a value": in_option(
        "--set data.task.x=3", "--set data.task.x=3", "'data.task.x'"
    ),
    "option: list without brackets": in_option("--set seeds=13,21", "--set seeds=13,21", "'seeds'"),
    "option: empty part": in_option("--set search..k=1", "--set search..k=1"),
    "option: no value": in_option("--set search.k", "search.k"),
    "option: online reward of later attempts": call(
        "run demo-code --dry-run --set training.trainer=grpo --set experiments={}",
        "can reward only the first attempt",
        "episode.attempts",
    ),
    "option: online reward of a stricter verifier": in_online(
        "--set verifier.name=math --set experiments={}", "is permissive, but the verifier math"
    ),
    "option: online reference": in_online(
        "--set experiments.online.reference=gapt", "'gapt'", "'gapft'"
    ),
    "option: online experiment without an online arm": in_online(
        "--set conditions=[gapft,uniform]", "trained by grpo"
    ),
    "option: online mask without effect": in_online(
        "--set training.grpo.loss=grpo", "mask_flat", "loss: grpo"
    ),
    "option: together": in_option(
        "--set budget.n=1 --set training.update_groups=90",
        "--set training.update_groups=90",
        "'training'",
    ),
    "option: unknown verifier": in_option("--set verifier.name=nope", "'nope'"),
    "option: unknown backend": in_option("--set model.backend=hff", "'hff'", "'hf'"),
    "option: unknown response rule": in_option(
        "--set evidence.keep=shortst", "'shortst'", "'shortest'"
    ),
    "option: unknown executor": in_option("--set executor.name=locl", "'locl'", "'local'"),
    "option: unknown trainer": in_option("--set training.trainer=lor", "'lor'", "'lora'"),
    "option: unknown condition": in_option("--condition gapf", "'gapf'", "'gapft'"),
    "option: seed twice": in_option("--seed 3 --seed 3", "--seed 3 --seed 3", "'seeds'"),
    "option: number as a model": in_option(
        "--model-args pretrained=3", "--model-args pretrained=3"
    ),
    "option: model argument without a value": in_option("--model-args a=1,b", "--model-args b"),
    "option: unknown model argument": in_option("--set model.args.dtyp=float32", "dtyp"),
    "option: folder without a model": in_option("--set model.args.pretrained=EMPTY", "EMPTY"),
    "option: missing plugin": in_option("--plugin none.py", "none.py"),
    "option: unknown option": in_option("--sett a=b", "--sett"),
    "option: unknown stage": in_option(
        "--only serach", "--only serach: unknown stage; did you mean"
    ),
    "option: unknown split": in_option(
        "--only search --split audti", "--split audti: unknown split", "'audit'"
    ),
    "option: dry run of a stage": in_option("--only search --dry-run", "--only"),
    "option: key that is a date": in_option("--set 'paper={2026-01-01: {}}'", "quotes"),
    "option: address that is none": in_option(
        "--model-args base_url=http://[::1/v1", "model.args.base_url"
    ),
    "option: no limit": in_option("--limit 0 --dry-run", "limit"),
    "option: share as a limit": in_option("--limit 0.5 --dry-run", "limit"),
    "option: unknown task": in_data("--set data.task=gapft_dmo", "gapft_dmo", "gapft_demo"),
    "option: split that the task lacks": in_data(
        "--set experiments.scaling.calibration=validation", "validation_split"
    ),
    "option: parameter of a verifier": in_data(
        "--set 'verifier={name: option_letter, params: {rule: frist_explicit}}'",
        "option_letter",
        "'frist_explicit'",
        "'first_explicit'",
    ),
    "option: attempts without feedback": in_data(
        "--set episode.attempts=3", "'boxed_math'", "episode.attempts"
    ),
    "option: unknown parameter of a verifier": in_data(
        "--set 'verifier={name: option_letter, params: {rulle: x}}'", "'option_letter'", "'rulle'"
    ),
    "study: misspelt key": in_study("cels: {}", "'cels'", "'cells'"),
    "study: no cells": in_study("cells: {}", "'cells'"),
    "study: empty cell": in_study("cells: {A: {}}", "'cells.A'"),
    "study: settings of a run": in_study("cells: {A: {run: x, set: {a: 1}}}", "'set'"),
    "study: cells of one folder": in_study("cells: {A b: {run: x}, a/b: {run: y}}", "'a-b'"),
    "study: unknown reference": in_study("reference: gapf", "'gapf'"),
    "study: condition twice": in_study("conditions: [gapft, gapft]", "conditions"),
    "study: path as a name": in_study("name: ../../x", "'name'"),
    "study: unknown published mean": in_study("paper: {T: {nonsense: 1}}", "'nonsense'"),
    "file: key in a file with options": call(
        "run kk.yaml --run-dir out --set search.k=3", "kk.yaml", "'search.kk'"
    ),
    "file: option for a condition": call(
        "run uniform.yaml --run-dir out --set conditions.c.parms=1", "--set conditions.c.parms=1"
    ),
    "file: plugin that cannot be imported": in_option("--plugin broken.py", "broken.py"),
    "study: different attempts": call(
        "run attempts.yaml --dry-run --run-dir out", "'a'", "'b'", "episode.attempts"
    ),
    "study: two studies": call("run a.yaml b.yaml", "b.yaml"),
    "study: option of a run": call("run study.yaml --condition a", "--condition"),
    "plugin: name in use": in_registration(
        "selector", "'gapft', len", "'gapft'", "evidence_states"
    ),
    "plugin: no function": in_registration("selector", "'a', 3", "'a'"),
    "plugin: name with a space": in_registration("selector", "'a b', len", "'a b'"),
    "plugin: misspelt option": in_registration("selector", "'a', len, repeat=True", "'repeats'"),
    "plugin: unknown budget": in_registration("selector", "'a', len, budget=['own']", "budget"),
    "plugin: number as a trait": in_registration(
        "selector", "'a', len, repeats=1", "'repeats'", "found 1"
    ),
    "plugin: option of another kind": in_registration(
        "response rule", "'a', len, last=True", "'last'"
    ),
    "plugin: word for a list": in_registration(
        "sampler", "'a', len, operational='url'", "operational"
    ),
    "plugin: numbers for words": in_registration("trainer", "'a', len, needs=[3]", "needs"),
    "plugin: word for a function": in_registration("sampler", "'a', len, check='yes'", "check"),
    "policy: misspelt key": in_policy("tsks: {toy: {f1: 0.1}}", "'tsks'", "'tasks'"),
    "policy: misspelt margin": in_policy(
        "tasks: {toy: {f1: {blok: 0.1}}}", "'tasks.toy.f1.blok'", "mean 'tasks.toy.f1.block'"
    ),
    "policy: negative margin": in_policy("tasks: {toy: {f1: -0.01}}", "'tasks.toy.f1'", "-0.01"),
    "policy: no number": in_policy("overall: .nan", "nan"),
    "policy: boolean": in_policy("overall: true", "True"),
    "policy: nothing": in_policy("overall:", "no margin"),
    "policy: equal margins": in_policy("overall: {block: 0.1, warn: 0.1}", "warn"),
    "policy: margin of a task": in_policy("tasks: {toy: 0.1}", "'tasks.toy'"),
    "policy: no margins": in_policy("{}"),
    "policy: unknown task": in_policy(
        "tasks: {gapft_dmo: {f1: 0.1}}", "'gapft_dmo'", "'gapft_demo'"
    ),
    "policy: unknown metric": in_policy("tasks: {gapft_demo: {nope: 0.1}}", "'nope'"),
    "log: blank lines": for_logs("blank.jsonl better.jsonl", "blank.jsonl", "empty"),
    "log: samples with other verdicts": for_logs(
        "before.jsonl better.jsonl --verifier math --source-samples one.jsonl", "--source-samples"
    ),
    "log: no metrics": for_logs("empty.jsonl better.jsonl", "empty.jsonl, line 1"),
    "log: verdicts not graded": for_logs(
        "ungraded.jsonl ungraded.jsonl", "ungraded.jsonl", "bypass"
    ),
    "log: samples, one log twice": for_logs(
        "before.jsonl one.jsonl --common --source-samples better.jsonl "
        "--source-samples better.jsonl",
        "better.jsonl",
    ),
    "log: folder with two logs of a task": for_logs("before.jsonl two", "toy", "--latest"),
    "log: other task": for_logs("t o", "other", "toy"),
    "log: contradicting results": for_logs(
        "before.jsonl c", "results_2026-01-01T00-00-00.1.json", "0.25"
    ),
    "log: unknown direction": for_logs(
        "before.jsonl range.jsonl --fail-if-worse 0.01", "--higher-is-better", "--lower-is-better"
    ),
    "log: earlier comparison": for_logs(
        "before.jsonl better.jsonl --out done", "done", "--overwrite"
    ),
    "log: cluster": for_logs(
        "before.jsonl better.jsonl --cluster pasage",
        "before.jsonl, line 1",
        "'pasage'",
        "'passage'",
    ),
    "log: samples, the deployment decodes": for_logs(
        "before.jsonl better.jsonl --source-samples before.jsonl", "before.jsonl"
    ),
    "log: file twice": for_logs("before.jsonl better.jsonl better.jsonl", "better.jsonl"),
    "log: pattern without a file": for_logs("before.jsonl 'nowhere*'", "nowhere*"),
    "log: pattern with two logs before": for_logs("'*e*.jsonl' better.jsonl", "*e*.jsonl"),
    "log: folder without a log": for_logs("before.jsonl EMPTY", "gapft: EMPTY: no logs found"),
    "log: too many groups": for_logs("many.jsonl many.jsonl --by question", "1,200"),
    "log: one cluster": for_logs("before.jsonl better.jsonl --cluster passage", "cluster"),
    "log: one document with a margin": for_logs(
        "one.jsonl one.jsonl --fail-if-worse 0.01", "document"
    ),
    "log: margin that is not a number": for_logs(
        "before.jsonl better.jsonl --fail-if-worse nan", "--fail-if-worse"
    ),
    "log: folder for JUnit": for_logs(
        "before.jsonl better.jsonl --fail-if-worse 0.1 --junit EMPTY", "EMPTY"
    ),
    "log: keys of no format": in_file("after.jsonl", '{"question": 1}', "line 1", "question"),
    "task: misspelt key": in_task("keep: shortest", "kep: shortest", "kep", "keep"),
    "task: misspelt verifier": in_task("boxed_math", "boxed_meth", "'boxed_meth'", "'boxed_math'"),
    "task: misspelt response rule": in_task("keep: shortest", "keep: shortst", "'shortst'"),
    "task: misspelt split": in_task("test_split: test", "test_split: tset", "tset"),
    "task: misspelt field of an id": in_task("keep: shortest", 'id: "{{nmae}}"', "nmae"),
    "task: no YAML": in_task("task: sums", "task: [sums"),
    "task: conflicting generation": in_task("do_sample: false", "do_sample: true", "do_sample"),
    "task: missing data file": with_task("audit.jsonl", "nope.jsonl", "nope.jsonl"),
    "task: multiple choice": for_task("gap choice", "output_type", "multiple_choice"),
    "task: multiple choice for a run": for_task(
        "run --task choice", "output_type", "multiple_choice"
    ),
    "task: stock task without training": for_task("run --task stock", "training_split"),
    "task: gap: training split": for_task("gap stock --split pool", "training_split"),
    "task: gap: task": for_task("gap gapft_dmo", "gapft_dmo"),
    "task: gap: filter": for_task("gap stock --filter strict", "'strict'", "'strict-match'"),
    "task: gap: metric": for_task("gap stock --metric f1", "'f1'"),
    "task: gap: one sample": for_task("gap stock --k 1", "--k"),
    "task: gap: split": for_task("gap stock --split test", "--split", "'test'", "'audit'"),
    "task: gap: two tasks": for_task("gap stock,choice", "stock"),
    "task: gap: misspelt setting": for_task(
        "gap stock --set search.temprature=1", "search.temprature=1", "'search.temperature'"
    ),
    "task: gap: option of lm_eval": for_task("gap stock --batch_size 8", "--batch-size"),
    "task: metric without its filter": for_task(
        "run --task trained --set verifier.params.metric=strict-match", "exact_match,strict-match"
    ),
    "task: misspelt filter": for_task(
        "run --task trained --set verifier.params.metric=exact_match,strict", "'strict-match'"
    ),
    "other: run: folder of a run": call("run begun", "is a folder"),
    "other: compare: rows without a response": call(
        "compare silent.jsonl --verifier math", "silent.jsonl, line 2", "no text"
    ),
    "other: compare: gold that the verifier cannot read": call(
        "compare target.jsonl --verifier option_letter", "target.jsonl, line 1", "'Z9'"
    ),
    "other: run: nothing": call("run", "RECIPE", "--task"),
    "other: run: misspelt recipe": call("run dmo", "'dmo'", "'demo'"),
    "other: run: file of a misspelt recipe": call("run dmo.yaml", "dmo.yaml", "'demo'"),
    "other: run: unknown recipe": call("run xyz", "xyz", "gapft list recipes"),
    "other: run: stage of no run": call("run --run-dir nowhere --only states", "nowhere"),
    "other: run: address": call("run demo --run-dir s3://b/r", "s3://b/r"),
    "other: compare: one log": call("compare BEFORE", "BEFORE", "AFTER"),
    "other: compare: metric": call("compare BEFORE AFTER --metric nope", "'nope'"),
    "other: compare: task": call("compare BEFORE AFTER --task nope", "'nope'"),
    "other: compare: field of groups": call("compare BEFORE AFTER --by nope", "'nope'"),
    "other: compare: field of documents": call("compare BEFORE AFTER --on nope", "'nope'"),
    "other: compare: policy": call("compare BEFORE AFTER --policy nope.yaml", "nope.yaml"),
    "other: compare: two policies": call(
        "compare BEFORE AFTER --policy p.yaml --fail-if-worse 0.1", "--policy", "--fail-if-worse"
    ),
    "other: compare: verdicts without a policy": call("compare BEFORE AFTER --junit j", "--junit"),
    "other: compare: margin": call("compare BEFORE AFTER --fail-if-worse -1", "-1"),
    "other: compare: logs with the example": call("compare BEFORE --example", "--example"),
    "other: compare: verifier": call("compare BEFORE --verifier nope", "'nope'"),
    "other: compare: parameter": call("compare BEFORE --verifier math:rule", "math:rule"),
    "other: compare: unknown parameter": call("compare BEFORE --verifier math:x=1", "x"),
    "other: compare: parameter twice": call(
        "compare BEFORE --verifier math:x=1,x=2", "x is set twice"
    ),
    "other: compare: gold": call("compare BEFORE --verifier math --gold nope", "nope"),
    "other: compare: gold without a verifier": call("compare BEFORE AFTER --gold x", "--gold"),
    "other: gap: nothing": call("gap", "task"),
    "other: logs: missing file": call(
        "run --run-dir out --task gapft_demo --model-args pretrained=bundled:demo "
        "--set 'search.responses={pool: [no.json]}' --only search",
        "no.json",
    ),
    "other: export: nothing": call("export nope --out O", "--to"),
    "other: list": call("list taks", "list taks: unknown kind", "'tasks'"),
    "other: list: folder of recipes": call("list recipes --path", "--path"),
    "other: store": call("store nope", "nope"),
    "other: doctor": call("doctor nope", "nope"),
}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "EMPTY").mkdir()
    write_files(tmp_path, FILES)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def write_files(folder: Path, files: Mapping[str, Any]) -> None:
    for name, content in files.items():
        text = content if isinstance(content, str | bytes) else yaml.safe_dump(content)
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_bytes(text if isinstance(text, bytes) else text.encode())


def read_files(folder: Path) -> dict[Path, bytes | None]:
    """Read all files; the lock of a run has no content, which would name its last command."""
    return {
        path: path.read_bytes() if path.is_file() and path.name != "run.lock" else None
        for path in sorted(folder.rglob("*"))
        if "__pycache__" not in path.parts  # Python's own, beside a plugin
    }


@pytest.fixture
def fail(folder: Path) -> Callable[..., str]:
    """Run a command with a mistake in this process; check the law; return its line."""

    def run(*words: str) -> str:
        before, done = read_files(folder), command.call(*words)
        assert done.returncode == 2, done.stderr
        return check_mistake(done.stderr, before, folder)

    return run


def check_mistake(errors: str, before: Mapping[Path, bytes | None], folder: Path) -> str:
    """Check what a mistake printed to standard error and left; return its message.

    The message is one line; a list of differing keys has a line for each. What comes before are the
    usage, and what the command was doing.
    """
    lines = errors.splitlines()
    starts = [n for n, line in enumerate(lines) if line.startswith("gapft: ")]
    assert len(starts) == 1, errors
    assert "Traceback" not in errors
    assert "\x1b" not in errors
    assert read_files(folder) == before
    return "\n".join(lines[starts[0] :])


@pytest.mark.parametrize("name", MISTAKES)
def test_mistake_exits_2_with_one_line_that_names_it(
    name: str, folder: Path, fail: Callable[..., str]
) -> None:
    mistake = MISTAKES[name]
    write_files(folder, mistake.files)
    line = fail(*mistake.words)
    for culprit in mistake.culprits:
        assert culprit in line, line


def test_every_command_has_a_row() -> None:
    rows = {mistake.words[0] for mistake in MISTAKES.values()}
    rows |= {words[0] for words in PATHS.values()}
    assert {str(known.name) for known in app.registered_commands} <= rows


@pytest.mark.parametrize(
    "name", ["option: key", "option: unknown option", "option: unknown model argument"]
)
def test_mistake_ends_the_process_with_2(name: str, folder: Path) -> None:
    before = read_files(folder)
    done = command.gapft(*MISTAKES[name].words, cwd=folder)
    assert done.returncode == 2
    assert MISTAKES[name].culprits[0] in check_mistake(done.stderr, before, folder)


#: Every option and argument of a command that takes a path; ? stands for the path.
PATHS = {
    "run": ["run", "?"],
    "run --dry-run": ["run", "?", "--dry-run"],
    "run --run-dir": ["run", "demo", "--set", "data.task=nope", "--run-dir", "?"],
    "run --plugin": ["run", "demo", "--dry-run", "--plugin", "?"],
    "run --include-path": ["run", "demo", "--dry-run", "--include-path", "?"],
    "run --only": ["run", "?", "--only", "report"],
    "run --run-dir --only": ["run", "--run-dir", "?", "--only", "states"],
    "verify": ["verify", "?"],
    "gap": ["gap", "?"],
    "run STUDY --run-dir": ["run", "unknown.yaml", "--dry-run", "--run-dir", "?"],
    "export": ["export", "?", "--to", "trl", "--out", "O"],
    "export --out": ["export", "R", "--to", "trl", "--out", "?"],
    "compare": ["compare", "?", "?"],
    "compare --out": ["compare", "L", "L", "--out", "?"],
    "compare --verifier": ["compare", "?", "--verifier", "option_letter"],
    "list --plugin": ["list", "plugins", "--plugin", "?"],
}
ODD_PATHS = (
    "", ".", "/", "..", "d", "nope.yaml", "f.json", "f.json/x", "/proc", "/proc/self/mem",
    "/proc/x", "x" * 300,
)  # fmt: skip
#: Valid paths: any folder may have tasks, a new folder may become a run, and all of / is searched.
VALID_PATHS = {
    "run --include-path": ("", ".", "..", "d", "/", "/proc"),
    "run --run-dir": ("nope.yaml",),
    "compare": ("/",),
    "compare --verifier": ("/",),
}


#: Mistakes in commands on a searched run; RUN stands for its folder.
RUN_MISTAKES: dict[str, tuple[str, ...]] = {
    "export RUN --to tlr --out out": ("--to tlr: unknown format", "'trl'"),
    "export RUN --to trl --out RUN": ("RUN",),
    "export RUN --to trl --out out": ("selected",),
    "gap RUN --k 16": ("--k",),
    "run RUN --run-dir other": ("RUN", "--run-dir"),
    "run demo --run-dir RUN": ("--run-dir",),
    "run RUN --set name=other": ("--run-dir",),
    "run RUN --only serach": ("serach", "'search'"),
    "run RUN --set search.kk=2": ("--set search.kk=2", "'search.k'"),
    "run RUN --condition nope": ("'nope'",),
    "compare RUN --verifier math": ("RUN", "verifier.name"),
    "verify RUN --plugin nope.py": ("nope.py",),
}


@pytest.mark.parametrize("text", RUN_MISTAKES)
def test_mistake_leaves_a_run_as_it_was(text: str, run_at: RunAt, fail: Callable[..., str]) -> None:
    run = run_at("searched")
    words = [str(run.path) if word == "RUN" else word for word in text.split()]
    plugins = run.plugins if words[0] in ("run", "verify") else []
    line = fail(*words, *(word for file in plugins for word in ("--plugin", file)))
    for culprit in RUN_MISTAKES[text]:
        assert culprit.replace("RUN", str(run.path)) in line


@pytest.mark.parametrize("name", PATHS)
def test_odd_paths_are_mistakes(name: str, folder: Path, fail: Callable[..., str]) -> None:
    for file in ("recipe.yaml", "study.yaml"):  # they would make this folder a run or a study
        (folder / file).unlink()
    unknown = {"name": "s", "cells": {"a": {"recipe": "nope"}}}
    write_files(folder, {"d/kept": "", "unknown.yaml": unknown})
    for path in ODD_PATHS:
        if path not in VALID_PATHS.get(name, ()):
            fail(*(path if word == "?" else word for word in PATHS[name]))


def test_run_without_search_is_a_failure_of_verify(folder: Path) -> None:
    """It is no mistake, but not verified either, also as the cell of a study."""
    RunDirectory.create_or_open(folder / "r", check_recipe(deepcopy(RECIPE), "recipe"))
    write_files(folder, {"study.yaml": {"name": "s", "cells": {"a": {"run": str(folder / "r")}}}})
    for place in ("r", "."):
        done = command.gapft("verify", place, cwd=folder)
        assert done.returncode == 1
        assert "verified" not in done.stdout
