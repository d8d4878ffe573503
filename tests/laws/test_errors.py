"""The law of user mistakes, for all commands.

A mistake exits with status 2, prints one line that names the culprit, and leaves no file. A new
mistake needs a row in ``MISTAKES``; a new command needs at least one row.
"""

from __future__ import annotations

import gzip
import json
import shlex
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml

from gapft_harness.cli.main import app, main
from gapft_harness.hooks.registration import KINDS, find_hook
from gapft_harness.recipe.reading import check_recipe
from gapft_harness.run_directory.directory import RunDirectory
from tests.compare.logs import row
from tests.kit.command import gapft
from tests.kit.local_tasks import build_task
from tests.kit.recording_run import IN_PROCESS_PLUGIN
from tests.kit.runs import BaseRun

#: Logs of the demo's model before and after training.
LOGS = Path(__file__).parents[2] / "gapft_harness/demo/logs"
BEFORE, AFTER = str(LOGS / "before"), str(LOGS / "after")

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


def call(command: str, *culprits: str, **files: Any) -> Mistake:
    """Describe a mistake in the words of a command."""
    names = {"recipe": "recipe.yaml", "study": "study.yaml"}
    return Mistake(
        tuple(shlex.split(command)),
        culprits,
        {names.get(n, n): content for n, content in files.items()},
    )


def in_recipe(change: Mapping[str, Any], key: str, *more: str) -> Mistake:
    """Describe a mistake in a recipe's file, which the line must name with the key."""
    return Mistake(
        ("run", "recipe.yaml", "--run-dir", "out"),
        ("recipe.yaml", f"'{key}'", *more),
        {"recipe.yaml": {**RECIPE, **change}},
    )


def for_plugins(change: Mapping[str, Any], *culprits: str) -> Mistake:
    """Describe a mistake in a recipe that only the loaded plugins or experiments recognize."""
    return Mistake(
        ("run", "recipe.yaml", "--run-dir", "out"), culprits, {"recipe.yaml": {**RECIPE, **change}}
    )


#: Options of a command that starts jobs: they run in the process of the test.
IN_PROCESS = ("--plugin", "here.py", "--set", "executor.name=here")


def in_data(words: str, *culprits: str) -> Mistake:
    """Describe a mistake in options of ``gapft run`` that is found when the data are read."""
    words_of_run = ("run", "recipe.yaml", "--run-dir", "out", *shlex.split(words))
    return Mistake((*words_of_run, *IN_PROCESS), culprits)


def in_option(words: str, *culprits: str) -> Mistake:
    """Describe a mistake in options of ``gapft run``; the line must repeat the first culprit."""
    return Mistake(("run", "recipe.yaml", "--run-dir", "out", *shlex.split(words)), culprits)


def in_study(change: Mapping[str, Any], *culprits: str) -> Mistake:
    """Describe a mistake in a study's file."""
    return Mistake(
        ("run", "study.yaml", "--dry-run", "--run-dir", "out"),
        ("study.yaml", *culprits),
        {"study.yaml": {**STUDY, **change}},
    )


def in_policy(text: str, *culprits: str) -> Mistake:
    """Describe a mistake in a policy's file, which the line must name."""
    words = ("compare", BEFORE, AFTER, "--policy", "policy.yaml")
    return Mistake(words, ("policy.yaml", *culprits), {"policy.yaml": text})


def in_plugin(source: str, *culprits: str) -> Mistake:
    """Describe a mistake in a plugin's file, which the line must name."""
    head = "from gapft_harness.api import hookimpl\n\n\n"
    return Mistake(
        ("list", "plugins", "--plugin", "mine.py"),
        ("mine.py", *culprits),
        {"mine.py": head + source},
    )


def in_registration(kind: str, arguments: str, *culprits: str) -> Mistake:
    """Describe a mistake in the arguments of ``register``."""
    hook = HOOKS[kind]
    source = f"@hookimpl\ndef {hook}(register):\n    register({arguments})\n"
    return in_plugin(source, kind, *culprits)


def in_file(name: str, content: str | bytes, *culprits: str) -> Mistake:
    """Describe a file that is not a log, which the line must name."""
    return Mistake(("compare", "before.jsonl", name), (name, *culprits), {name: content})


def in_log(rows: Sequence[Mapping[str, Any]], *culprits: str, options: str = "") -> Mistake:
    """Describe a mistake in the rows of a log after, which the line must name."""
    words = ("compare", "before.jsonl", "after.jsonl", *shlex.split(options))
    return Mistake(words, ("after.jsonl", *culprits), {"after.jsonl": format_log(rows)})


def in_samples(rows: Sequence[Mapping[str, Any]], *culprits: str) -> Mistake:
    """Describe a mistake in the rows of a log of source samples, which the line must name."""
    words = ("compare", "before.jsonl", "before.jsonl", "--source-samples", "samples.jsonl")
    return Mistake(words, ("samples.jsonl", *culprits), {"samples.jsonl": format_log(rows)})


def for_logs(options: str, *culprits: str, **files: Any) -> Mistake:
    """Describe a mistake in options of ``gapft compare``."""
    return Mistake(("compare", *shlex.split(options)), culprits, files)


def format_log(rows: Sequence[Mapping[str, Any]]) -> str:
    return "".join(f"{json.dumps(line)}\n" for line in rows)


def change_row(number: int, **changes: Any) -> list[dict[str, Any]]:
    """Return the rows of a good log with one changed row."""
    return [line | changes if n == number else line for n, line in enumerate(ROWS)]


def list_verdicts(number: int, *statuses: str) -> dict[str, Any]:
    """Return a row with a verdict on each of several responses."""
    return row(number, 0, verdicts=[{"status": status} for status in statuses])


#: Options of a command that uses a task of the folder, without a model.
DUMMY = (
    *("--model", "dummy", "--model-args", "pretrained=none", "--include-path", "tasks"),
    *IN_PROCESS,
)


def in_task(old: str, new: str, *culprits: str) -> Mistake:
    """Describe a mistake in a task's YAML file, which the line must name."""
    assert old in TASK
    words = ("gap", "sums", *DUMMY)
    files = {"tasks/sums.yaml": TASK.replace(old, new)}
    return Mistake(words, ("sums.yaml", *culprits), files)


def for_task(command: str, *culprits: str) -> Mistake:
    """Describe a mistake in a command that uses one of lm-eval's tasks."""
    words = (*shlex.split(command), *DUMMY)
    return Mistake(
        words,
        culprits,
        {"tasks/stock.yaml": STOCK, "tasks/choice.yaml": CHOICE, "tasks/trained.yaml": TRAINED},
    )


def model_args(**args: Any) -> dict[str, Any]:
    return {"model": {"args": {"pretrained": "m", **args}}}


def condition(**settings: Any) -> dict[str, Any]:
    return {"conditions": {"c": settings}}


#: The hook that registers each kind of component.
HOOKS = {kind: find_hook(kind) for kind in KINDS}

#: Rows of a good log.
ROWS = [row(number, 1) for number in range(4)]
#: Files that are in the folder of every command.
FILES: Mapping[str, Any] = {
    "recipe.yaml": RECIPE,
    "study.yaml": STUDY,
    "f.json": "{}\n",
    "here.py": IN_PROCESS_PLUGIN,
    "before.jsonl": format_log([row(number, number % 2) for number in range(4)]),
    "better.jsonl": format_log(ROWS),
    "one.jsonl": format_log(ROWS[:1]),
    "many.jsonl": format_log([row(number, 0) for number in range(1200)]),
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

#: Mistakes in a recipe's file: the nearest key or name comes after the wrong one.
RECIPE_MISTAKES = {
    "misspelt section": in_recipe({"serach": {"k": 2}}, "serach", "'search'"),
    "misspelt key": in_recipe({"search": {"kk": 2}}, "search.kk", "'search.k'"),
    "key without its section": in_recipe({"k": 2}, "k", "'search.k'"),
    "range": in_recipe({"seeds": "9-3"}, "seeds"),
    "seed twice": in_recipe({"seeds": [13, 13]}, "seeds"),
    "misspelt tracker": in_recipe({"tracker": "tensorbord"}, "tracker", "'tensorboard'"),
    "value for a section": in_recipe({"search": 3}, "search"),
    "unknown number of slots": in_recipe({"budget": {"n": "all"}}, "budget.n"),
    "quoted number": in_recipe({"search": {"k": "8"}}, "search.k"),
    "no samples": in_recipe({"search": {"k": 0}}, "search.k"),
    "no task": in_recipe({"data": {}}, "data.task"),
    "no model": in_recipe({"model": {"args": {"dtype": "float32"}}}, "model.args", "pretrained"),
    "end of thoughts": in_recipe(
        model_args(think_end_token=151668), "model.args", "think_end_token"
    ),
    "thinking twice": in_recipe(
        model_args(enable_thinking=True, chat_template_args={"enable_thinking": False}),
        "model.args",
        "chat_template_args",
    ),
    "file in GGUF's format": in_recipe(model_args(pretrained="a/m.gguf"), "model.args", "GGUF"),
    "path as a name": in_recipe({"name": "a/b"}, "name"),
    "more update groups than exposures": in_recipe(
        {"budget": {"n": 21, "replay": 10}, "training": {"update_groups": 64, "repetitions": 2}},
        "training",
        "update_groups",
    ),
    "no conditions": in_recipe({"conditions": []}, "conditions"),
    "two conditions in one item": in_recipe({"conditions": [{"a": {}, "b": {}}]}, "conditions"),
    "condition twice": in_recipe({"conditions": ["a", {"a": {}}]}, "conditions"),
    "value for a condition": in_recipe({"conditions": {"c": "uniform"}}, "conditions.c"),
    "condition above the folder": in_recipe({"conditions": {"../c": {}}}, "conditions", "'../c'"),
    "condition named as the source": in_recipe(
        {"conditions": {"source": {"selector": "uniform"}}}, "conditions", "'source'"
    ),
    "misspelt selector": for_plugins(condition(selector="gapf"), "'gapf'", "'gapft'"),
    "missing parameter": for_plugins(
        condition(selector="search_depth"), "'conditions.c.params'", "'search_depth'", "'k'"
    ),
    "unknown parameter": for_plugins(
        condition(selector="search_depth", params={"k": 1, "depth": 1}),
        "'conditions.c.params'",
        "'depth'",
    ),
    "slots as a parameter": for_plugins(
        condition(selector="repeated", params={"times": 2, "n": 3}), "'conditions.c.params'", "'n'"
    ),
    "slots of a reference": for_plugins(
        condition(selector="all_verified", n=4), "'conditions.c.n'", "'all_verified'"
    ),
    "more samples than the search's": in_recipe(
        condition(selector="gapft", k=9), "conditions.c.k", "search.k"
    ),
    "misspelt training": in_recipe(
        condition(selector="gapft", training={"rnak": 4}), "conditions.c.training.rnak", "rank"
    ),
    "start tokens without the model's": in_recipe(
        condition(selector="gapft", training={"start_tokens": 1}),
        "conditions.c.training",
        "start_tokens",
    ),
    "control with other settings": for_plugins(
        {
            "conditions": {
                "whole": {"selector": "search_depth", "params": {"k": 1}},
                "depth": {"selector": "search_depth", "params": {"k": 4}, "k": 4},
            },
            "experiments": {"search_depth": {}},
        },
        "'whole'",
        "'depth'",
    ),
    "odd slots of two halves": for_plugins(
        {
            "budget": {"n": 47},
            "conditions": ["diffuse", "concentrated"],
            "experiments": {"allocation": {"diffuse": "diffuse", "concentrated": "concentrated"}},
        },
        "'experiments.allocation'",
        "budget.n",
    ),
    "unknown condition of an experiment": for_plugins(
        {"experiments": {"allocation": {"diffuse": "gapft", "concentrated": "more"}}},
        "'experiments.allocation.concentrated'",
        "'more'",
    ),
    "experiment with one condition twice": for_plugins(
        {"experiments": {"allocation": {"diffuse": "gapft", "concentrated": "gapft"}}},
        "'experiments.allocation'",
        "'gapft'",
    ),
    "misspelt experiment": for_plugins({"experiments": {"scop": {}}}, "'scop'", "'scope'"),
    "unknown key of an experiment": for_plugins(
        {"experiments": {"search_depth": {"draws": 1}}}, "'experiments.search_depth.draws'"
    ),
}
FILE_MISTAKES = {
    "key in a file with options": call(
        "run recipe.yaml --run-dir out --set search.k=3",
        "recipe.yaml",
        "'search.kk'",
        recipe={**RECIPE, "search": {"kk": 3}},
    ),
    "option for a condition": call(
        "run recipe.yaml --run-dir out --set conditions.c.parms=1",
        "--set conditions.c.parms=1",
        recipe={**RECIPE, **condition(selector="uniform")},
    ),
    "empty file": call("run recipe.yaml --run-dir out", "recipe.yaml", recipe=""),
    "date that does not exist": call(
        "run recipe.yaml --run-dir out", "recipe.yaml", "month", recipe="name: 2020-13-01\n"
    ),
    "no YAML": call("run recipe.yaml --run-dir out", "recipe.yaml", "line 2", recipe="a: [1\n"),
    "key twice": call(
        "run recipe.yaml --run-dir out", "line 2", "'seeds'", recipe="seeds: [1]\nseeds: [2]\n"
    ),
    "encoding": call(
        "run recipe.yaml --run-dir out", "recipe.yaml", "line 2", recipe=b"name: r\nx: caf\xe9\n"
    ),
    "plugin that cannot be imported": call(
        "run recipe.yaml --run-dir out --plugin p.py", "p.py", **{"p.py": "import nothing_here\n"}
    ),
}
OPTION_MISTAKES = {
    "key": in_option("--set search.kk=3", "--set search.kk=3", "'search.kk'", "'search.k'"),
    "key in a value": in_option("--set 'search={kk: 3}'", "--set search={kk: 3}", "'search.kk'"),
    "key below a value": in_option("--set data.task.x=3", "--set data.task.x=3", "'data.task.x'"),
    "list without brackets": in_option("--set seeds=13,21", "--set seeds=13,21", "'seeds'"),
    "empty part": in_option("--set search..k=1", "--set search..k=1"),
    "no value": in_option("--set search.k", "search.k"),
    "together": in_option(
        "--set budget.n=1 --set training.update_groups=90",
        "--set training.update_groups=90",
        "'training'",
    ),
    "unknown task": in_data("--set data.task=gapft_dmo", "gapft_dmo", "gapft_demo"),
    "split that the task lacks": in_data(
        "--set experiments.scaling.calibration=validation", "validation_split"
    ),
    "unknown verifier": in_option("--set verifier.name=nope", "'nope'"),
    "parameter of a verifier": in_data(
        "--set 'verifier={name: option_letter, params: {rule: frist_explicit}}'",
        "option_letter",
        "'frist_explicit'",
        "'first_explicit'",
    ),
    "unknown parameter of a verifier": in_data(
        "--set 'verifier={name: option_letter, params: {rulle: x}}'", "'option_letter'", "'rulle'"
    ),
    "unknown backend": in_option("--set model.backend=hff", "'hff'", "'hf'"),
    "unknown response rule": in_option("--set evidence.keep=shortst", "'shortst'", "'shortest'"),
    "unknown executor": in_option("--set executor.name=locl", "'locl'", "'local'"),
    "unknown trainer": in_option("--set training.trainer=lor", "'lor'", "'lora'"),
    "unknown condition": in_option("--condition gapf", "'gapf'", "'gapft'"),
    "seed twice": in_option("--seed 3 --seed 3", "--seed 3 --seed 3", "'seeds'"),
    "number as a model": in_option("--model-args pretrained=3", "--model-args pretrained=3"),
    "model argument without a value": in_option("--model-args a=1,b", "--model-args b"),
    "unknown model argument": in_option("--set model.args.dtyp=float32", "dtyp"),
    "folder without a model": in_option("--set model.args.pretrained=EMPTY", "EMPTY"),
    "missing plugin": in_option("--plugin none.py", "none.py"),
    "unknown option": in_option("--sett a=b", "--sett"),
    "unknown stage": in_option("--only serach", "--only serach: unknown stage; did you mean"),
    "unknown split": in_option(
        "--only search --split audti", "--split audti: unknown split", "'audit'"
    ),
    "no limit": in_option("--limit 0 --dry-run", "limit"),
    "share as a limit": in_option("--limit 0.5 --dry-run", "limit"),
}
STUDY_MISTAKES = {
    "misspelt key": in_study({"cels": {}}, "'cels'", "'cells'"),
    "no cells": in_study({"cells": {}}, "'cells'"),
    "empty cell": in_study({"cells": {"A": {}}}, "'cells.A'"),
    "settings of a run": in_study({"cells": {"A": {"run": "x", "set": {"a": 1}}}}, "'set'"),
    "cells of one folder": in_study({"cells": {"A b": {"run": "x"}, "a/b": {"run": "y"}}}, "'a-b'"),
    "unknown reference": in_study({"reference": "gapf"}, "'gapf'"),
    "condition twice": in_study({"conditions": ["gapft", "gapft"]}, "conditions"),
    "path as a name": in_study({"name": "../../x"}, "'name'"),
    "invisible cell": in_study({"cells": {"A \u202e": {"run": "x"}}}, "cells"),
    "long cell": in_study({"cells": {"n" * 300: {"run": "x"}}}, "cells"),
    "unknown published mean": in_study({"paper": {"T": {"nonsense": 1}}}, "'nonsense'"),
    "two studies": call("run a.yaml b.yaml", "b.yaml"),
    "option of a run": call("run study.yaml --condition a", "--condition"),
    "different attempts": call(
        "run study.yaml --dry-run --run-dir out",
        "'a'",
        "'b'",
        "episode.attempts",
        **{
            "study.yaml": {
                "name": "s",
                "cells": {
                    "a": {"recipe": "demo"},
                    "b": {"recipe": "demo", "set": {"data.task": "gapft_demo_code"}},
                },
            }
        },
    ),
}
PLUGIN_MISTAKES = {
    "failure on import": in_plugin("raise RuntimeError('broken')\n", "RuntimeError"),
    "exit on import": in_plugin("raise SystemExit(0)\n", "SystemExit"),
    "syntax": in_plugin("def f(:\n", "line 4"),
    "no hook": in_plugin("x = 1\n"),
    "misspelt hook": in_plugin(
        "@hookimpl\ndef register_selector(register):\n    pass\n", "'register_selectors'"
    ),
    "misspelt argument of a hook": in_plugin(
        "@hookimpl\ndef register_selectors(registry):\n    pass\n", "registry"
    ),
    "failing hook": in_plugin(
        "@hookimpl\ndef register_selectors(register):\n    1 / 0\n",
        "register_selectors",
        "ZeroDivisionError",
    ),
    "name in use": in_registration("selector", "'gapft', len", "'gapft'", "evidence_states"),
    "no function": in_registration("selector", "'a', 3", "'a'"),
    "name with a space": in_registration("selector", "'a b', len", "'a b'"),
    "misspelt option": in_registration("selector", "'a', len, repeat=True", "'repeats'"),
    "unknown budget": in_registration("selector", "'a', len, budget=['own']", "budget"),
    "number as a trait": in_registration("selector", "'a', len, repeats=1", "'repeats'", "found 1"),
    "option of another kind": in_registration("response rule", "'a', len, last=True", "'last'"),
    "word for a list": in_registration("sampler", "'a', len, operational='url'", "operational"),
    "numbers for words": in_registration("trainer", "'a', len, needs=[3]", "needs"),
    "word for a function": in_registration("sampler", "'a', len, check='yes'", "check"),
}
POLICY_MISTAKES = {
    "misspelt key": in_policy("tsks: {toy: {f1: 0.1}}", "'tsks'", "'tasks'"),
    "misspelt margin": in_policy(
        "tasks: {toy: {f1: {blok: 0.1}}}", "'tasks.toy.f1.blok'", "mean 'tasks.toy.f1.block'"
    ),
    "negative margin": in_policy("tasks: {toy: {f1: -0.01}}", "'tasks.toy.f1'", "-0.01"),
    "no number": in_policy("overall: .nan", "nan"),
    "boolean": in_policy("overall: true", "True"),
    "nothing": in_policy("overall:", "no margin"),
    "equal margins": in_policy("overall: {block: 0.1, warn: 0.1}", "warn"),
    "margin of a task": in_policy("tasks: {toy: 0.1}", "'tasks.toy'"),
    "no margins": in_policy("{}"),
    "unknown task": in_policy("tasks: {gapft_dmo: {f1: 0.1}}", "'gapft_dmo'", "'gapft_demo'"),
    "unknown metric": in_policy("tasks: {gapft_demo: {nope: 0.1}}", "'nope'"),
}
LOG_MISTAKES = {
    "text for a number": in_log(change_row(2, exact_match="1"), "line 3", "'exact_match'"),
    "no finite sum": in_log(change_row(1, exact_match=1e300), "line 2", "'exact_match'"),
    "NaN": in_log(change_row(1, exact_match=float("nan")), "line 2", "'exact_match'"),
    "null": in_log(change_row(1, exact_match=None), "line 2", "'exact_match'"),
    "no metrics": for_logs(
        "after.jsonl better.jsonl",
        "after.jsonl, line 1",
        **{"after.jsonl": format_log(change_row(0, metrics=[]))},
    ),
    "no document": in_log([*ROWS[:3], {"filter": "none", "metrics": ["x"]}], "line 4", "doc"),
    "document twice": in_log([*ROWS, ROWS[1]], "line 5", "doc_id 1"),
    "missing document": in_log(ROWS[:3]),
    "additional document": in_log([*ROWS, row(9, 1)], "line 5", "doc_id 9"),
    "other filter": in_log([line | {"filter": "strict"} for line in ROWS], "'none'", "strict"),
    "verdicts not graded": for_logs(
        "after.jsonl after.jsonl",
        "after.jsonl",
        "bypass",
        **{
            "after.jsonl": format_log([row(n, 0, metrics=["bypass"], bypass=999) for n in range(4)])
        },
    ),
    "control characters": for_logs(
        "after.jsonl after.jsonl --by '\x1b[31mnope'",
        "after.jsonl, line 1",
        repr("x\n\x1b[2J"),
        **{"after.jsonl": format_log(change_row(0, doc={"question": "q0", "x\n\x1b[2J": 1}))},
    ),
    "cluster": for_logs(
        "before.jsonl better.jsonl --cluster pasage",
        "before.jsonl, line 1",
        "'pasage'",
        "'passage'",
    ),
    "ambiguous documents": in_log(
        [line | {"doc_id": 0} for line in ROWS], "--on", options="--on passage"
    ),
    "truncated": in_file("after.jsonl", format_log(ROWS)[:-30], "line 4"),
    "encoding": in_file("after.jsonl", b'{"doc_id": \xff}\n', "line 1"),
    "list": in_file("after.jsonl", "[1]\n", "line 1"),
    "empty": in_file("after.jsonl", ""),
    "keys of no format": in_file("after.jsonl", '{"question": 1}', "line 1", "question"),
    "format of no reader": in_file("after.csv", "question,right\n", "line 1"),
    "compressed, truncated": in_file(
        "after.jsonl.gz", gzip.compress(format_log(ROWS).encode())[:-30]
    ),
    "lighteval, no Parquet": in_file("details_x.parquet", b"x"),
    "Inspect, no archive": in_file("log.eval", b"x"),
    "samples, missing document": in_samples(
        [list_verdicts(number, "pass", "fail") for number in range(3)]
    ),
    "samples, uneven": in_samples(
        [list_verdicts(number, "pass", *["fail"] * (number < 3)) for number in range(4)], "line 4"
    ),
    "samples, impossible rate": in_samples(
        [row(n, 0, resps=[["a", "b", "c"]], **{"pass@1": 0.4}) for n in range(4)],
        "line 1",
        "pass@1",
    ),
    "samples, part of a verdict": in_samples(
        [row(number, 0.5) for number in range(4)], "line 1", "exact_match"
    ),
    "samples, several responses": in_samples(
        [row(number, 1, resps=[["a"] * 8]) for number in range(4)], "line 1", "exact_match"
    ),
    "samples, too few verdicts": in_samples(
        [row(number, 0, resps=[["a", "b"]], verdicts=[{"status": "pass"}]) for number in range(4)],
        "line 1",
    ),
    "samples, no verdict later": in_samples(
        [list_verdicts(0, "pass"), *ROWS[1:]], "no samples of 3 of 4"
    ),
    "samples, the deployment decodes": for_logs(
        "before.jsonl better.jsonl --source-samples before.jsonl", "before.jsonl"
    ),
    "samples, one log twice": for_logs(
        "before.jsonl one.jsonl --common --source-samples better.jsonl "
        "--source-samples better.jsonl",
        "better.jsonl",
    ),
    "file twice": for_logs("before.jsonl better.jsonl better.jsonl", "better.jsonl"),
    "pattern without a file": for_logs("before.jsonl 'nowhere*'", "nowhere*"),
    "pattern with two logs before": for_logs("'*e*.jsonl' better.jsonl", "*e*.jsonl"),
    "folder without a log": for_logs("before.jsonl EMPTY", "gapft: EMPTY: no logs found"),
    "folder with two logs of a task": for_logs(
        "before.jsonl d",
        "toy",
        "--latest",
        **{f"d/samples_toy_2026-01-0{day}T00-00-00.1.jsonl": format_log(ROWS) for day in (1, 2)},
    ),
    "other task": for_logs(
        "a b",
        "other",
        "toy",
        **{
            f"{folder}/samples_{task}_2026-01-01T00-00-00.1.jsonl": format_log(ROWS)
            for folder, task in (("a", "toy"), ("b", "other"))
        },
    ),
    "contradicting results": for_logs(
        "before.jsonl b",
        "results_2026-01-01T00-00-00.1.json",
        "0.25",
        **{
            "b/samples_toy_2026-01-01T00-00-00.1.jsonl": format_log(ROWS),
            "b/results_2026-01-01T00-00-00.1.json": json.dumps(
                {"results": {"toy": {"exact_match,none": 0.25}}}
            ),
        },
    ),
    "too many groups": for_logs("many.jsonl many.jsonl --by question", "1,200"),
    "one cluster": for_logs("before.jsonl better.jsonl --cluster passage", "cluster"),
    "one document with a margin": for_logs("one.jsonl one.jsonl --fail-if-worse 0.01", "document"),
    "margin that is not a number": for_logs(
        "before.jsonl better.jsonl --fail-if-worse nan", "--fail-if-worse"
    ),
    "unknown direction": for_logs(
        "before.jsonl after.jsonl --fail-if-worse 0.01",
        "--higher-is-better",
        "--lower-is-better",
        **{"after.jsonl": format_log(change_row(1, exact_match=3.5))},
    ),
    "earlier comparison": for_logs(
        "before.jsonl better.jsonl --out d", "d", "--overwrite", **{"d/comparison.html": ""}
    ),
    "folder for JUnit": for_logs(
        "before.jsonl better.jsonl --fail-if-worse 0.1 --junit EMPTY", "EMPTY"
    ),
}
TASK_MISTAKES = {
    "misspelt key": in_task("keep: shortest", "kep: shortest", "kep", "keep"),
    "misspelt verifier": in_task("boxed_math", "boxed_meth", "'boxed_meth'", "'boxed_math'"),
    "misspelt response rule": in_task("keep: shortest", "keep: shortst", "'shortst'"),
    "missing data file": Mistake(
        ("gap", "sums", *DUMMY),
        ("nope.jsonl",),
        {"tasks/sums.yaml": TASK.replace("audit.jsonl", "nope.jsonl")},
    ),
    "misspelt split": in_task("test_split: test", "test_split: tset", "tset"),
    "misspelt field of an id": in_task("keep: shortest", 'id: "{{nmae}}"', "nmae"),
    "no YAML": in_task("task: sums", "task: [sums"),
    "conflicting generation": in_task("do_sample: false", "do_sample: true", "do_sample"),
    "golds that the verifier cannot read": Mistake(
        ("gap", "sums", *DUMMY),
        ("audit.jsonl", "line 1"),
        {
            "tasks/sums.yaml": TASK.replace("boxed_math", "option_letter"),
            "tasks/audit.jsonl": '{"question": "2+2?", "answer": "4"}\n',
        },
    ),
    "malformed data": Mistake(
        ("gap", "sums", *DUMMY),
        ("audit.jsonl",),
        {"tasks/sums.yaml": TASK, "tasks/audit.jsonl": '{"question": "2+2?"\n'},
    ),
    "multiple choice": for_task("gap choice", "output_type", "multiple_choice"),
    "multiple choice for a run": for_task("run --task choice", "output_type", "multiple_choice"),
    "stock task without training": for_task("run --task stock", "training_split"),
    "gap: training split": for_task("gap stock --split pool", "training_split"),
    "gap: task": for_task("gap gapft_dmo", "gapft_dmo"),
    "gap: filter": for_task("gap stock --filter strict", "'strict'", "'strict-match'"),
    "gap: metric": for_task("gap stock --metric f1", "'f1'"),
    "gap: one sample": for_task("gap stock --k 1", "--k"),
    "gap: split": for_task("gap stock --split test", "--split", "'test'", "'audit'"),
    "gap: two tasks": for_task("gap stock,choice", "stock"),
    "gap: misspelt setting": for_task(
        "gap stock --set search.temprature=1", "search.temprature=1", "'search.temperature'"
    ),
    "gap: option of lm_eval": for_task("gap stock --batch_size 8", "--batch-size"),
    "metric without its filter": for_task(
        "run --task trained --set verifier.params.metric=strict-match", "exact_match,strict-match"
    ),
    "misspelt filter": for_task(
        "run --task trained --set verifier.params.metric=exact_match,strict", "'strict-match'"
    ),
}
OTHER_MISTAKES = {
    "run: nothing": call("run", "RECIPE", "--task"),
    "run: misspelt recipe": call("run dmo", "'dmo'", "'demo'"),
    "run: file of a misspelt recipe": call("run dmo.yaml", "dmo.yaml", "'demo'"),
    "run: unknown recipe": call("run xyz", "xyz", "gapft list recipes"),
    "run: folder of a run": call("run r", "is a folder", **{"r/recipe.yaml": "name: x\n"}),
    "run: stage of no run": call("run --run-dir nowhere --only states", "nowhere"),
    "run: address": call("run demo --run-dir s3://b/r", "s3://b/r"),
    "compare: one log": call(f"compare {BEFORE}", "BEFORE", "AFTER"),
    "compare: metric": call(f"compare {BEFORE} {AFTER} --metric nope", "'nope'"),
    "compare: task": call(f"compare {BEFORE} {AFTER} --task nope", "'nope'"),
    "compare: field of groups": call(f"compare {BEFORE} {AFTER} --by nope", "'nope'"),
    "compare: field of documents": call(f"compare {BEFORE} {AFTER} --on nope", "'nope'"),
    "compare: policy": call(f"compare {BEFORE} {AFTER} --policy nope.yaml", "nope.yaml"),
    "compare: two policies": call(
        f"compare {BEFORE} {AFTER} --policy p.yaml --fail-if-worse 0.1",
        "--policy",
        "--fail-if-worse",
    ),
    "compare: verdicts without a policy": call(f"compare {BEFORE} {AFTER} --junit j", "--junit"),
    "compare: margin": call(f"compare {BEFORE} {AFTER} --fail-if-worse -1", "-1"),
    "compare: logs with the example": call(f"compare {BEFORE} --example", "--example"),
    "compare: verifier": call(f"compare {BEFORE} --verifier nope", "'nope'"),
    "compare: parameter": call(f"compare {BEFORE} --verifier math:rule", "math:rule"),
    "compare: unknown parameter": call(f"compare {BEFORE} --verifier math:x=1", "x"),
    "compare: parameter twice": call(f"compare {BEFORE} --verifier math:x=1,x=2", "x is set twice"),
    "compare: gold": call(f"compare {BEFORE} --verifier math --gold nope", "nope"),
    "compare: gold without a verifier": call(f"compare {BEFORE} {AFTER} --gold x", "--gold"),
    "compare: rows without a response": Mistake(
        ("compare", "log.jsonl", "--verifier", "math"),
        ("log.jsonl, line 2", "no text"),
        {"log.jsonl": format_log([row(0, 1), {"doc": {}, "filter": "none", "metrics": []}])},
    ),
    "compare: gold that the verifier cannot read": Mistake(
        ("compare", "log.jsonl", "--verifier", "option_letter"),
        ("log.jsonl, line 1", "'Z9'"),
        {"log.jsonl": format_log([row(0, 1, target="Z9")])},
    ),
    "gap: nothing": call("gap", "task"),
    "logs: missing file": call(
        "run --run-dir r --task gapft_demo --model-args pretrained=bundled:demo "
        "--set 'search.responses={pool: [no.json]}' --only search", "no.json"
    ),
    "export: nothing": call("export nope --out O", "--to"),
    "list": call("list taks", "list taks: unknown kind", "'tasks'"),
    "list: folder of recipes": call("list recipes --path", "--path"),
    "store": call("store nope", "nope"),
    "doctor": call("doctor nope", "nope"),
}  # fmt: skip
MISTAKES = {
    f"{kind}: {name}": mistake
    for kind, rows in {
        "recipe": RECIPE_MISTAKES,
        "file": FILE_MISTAKES,
        "option": OPTION_MISTAKES,
        "study": STUDY_MISTAKES,
        "plugin": PLUGIN_MISTAKES,
        "policy": POLICY_MISTAKES,
        "log": LOG_MISTAKES,
        "task": TASK_MISTAKES,
        "other": OTHER_MISTAKES,
    }.items()
    for name, mistake in rows.items()
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
def fail(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., str]:
    """Run a command with a mistake in this process; check the law; return its line."""

    def run(*words: str) -> str:
        before, handler = read_files(folder), signal.getsignal(signal.SIGINT)
        monkeypatch.setattr(sys, "argv", ["gapft", *words])
        capsys.readouterr()
        try:
            with pytest.raises(SystemExit) as end:
                main()
        finally:
            signal.signal(signal.SIGINT, handler)
        errors = capsys.readouterr().err
        assert end.value.code == 2, errors
        return check_mistake(errors, before, folder)

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
    rows = {mistake.words[0] for mistake in MISTAKES.values()} | {
        words[0] for words in PATHS.values()
    }
    assert {str(command.name) for command in app.registered_commands} <= rows


@pytest.mark.parametrize(
    "name", ["option: key", "option: unknown option", "option: unknown model argument"]
)
def test_mistake_ends_the_process_with_2(name: str, folder: Path) -> None:
    before = read_files(folder)
    done = gapft(*MISTAKES[name].words, cwd=folder)
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
    "run RUN --only serach": ("serach", "'search'"),
    "run RUN --set search.kk=2": ("--set search.kk=2", "'search.k'"),
    "run RUN --condition nope": ("'nope'",),
    "compare RUN --verifier math": ("RUN", "verifier.name"),
    "verify RUN --plugin nope.py": ("nope.py",),
}


@pytest.mark.parametrize("command", RUN_MISTAKES)
def test_mistake_leaves_a_run_as_it_was(
    command: str, run_at: Callable[..., BaseRun], fail: Callable[..., str]
) -> None:
    run = run_at("searched")
    words = [str(run.path) if word == "RUN" else word for word in command.split()]
    plugins = run.plugins if words[0] in ("run", "verify") else []
    line = fail(*words, *(word for file in plugins for word in ("--plugin", file)))
    for culprit in RUN_MISTAKES[command]:
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
        done = gapft("verify", place, cwd=folder)
        assert done.returncode == 1
        assert "verified" not in done.stdout
