"""The law of user mistakes, for all commands.

A mistake exits with status 2, prints one line that names the culprit, and leaves no file. A new
mistake needs a row in ``MISTAKES``; a new command needs at least one row.
"""

from __future__ import annotations

import gzip
import json
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
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

#: By kind of mistake and the function that describes it: names of mistakes, the function's
#: arguments, and culprits. The nearest key or name comes after the wrong one.
TABLE = """

recipe: in_recipe
  misspelt section | serach: {k: 2} | serach | 'search'
  misspelt key | search: {kk: 2} | search.kk | 'search.k'
  key without its section | k: 2 | k | 'search.k'
  range | seeds: 9-3 | seeds
  seed twice | seeds: [13, 13] | seeds
  misspelt tracker | tracker: tensorbord | tracker | 'tensorboard'
  value for a section | search: 3 | search
  unknown number of slots | budget: {n: all} | budget.n
  quoted number | search: {k: '8'} | search.k
  no samples | search: {k: 0} | search.k
  no task | data: {} | data.task
  no model | model: {args: {dtype: float32}} | model.args | pretrained
  end of thoughts | model: {args: {pretrained: m, think_end_token: 151668}} | model.args \
| think_end_token
  thinking twice | model: {args: {pretrained: m, enable_thinking: true, chat_template_args: \
{enable_thinking: false}}} | model.args | chat_template_args
  file in GGUF's format | model: {args: {pretrained: a/m.gguf}} | model.args | GGUF
  path as a name | name: a/b | name
  more update groups than exposures \
| {budget: {n: 21, replay: 10}, training: {update_groups: 64, repetitions: 2}} | training \
| update_groups
  no conditions | conditions: [] | conditions
  two conditions in one item | conditions: [{a: {}, b: {}}] | conditions
  condition twice | conditions: [a, a: {}] | conditions
  value for a condition | conditions: {c: uniform} | conditions.c
  condition above the folder | conditions: {../c: {}} | conditions | '../c'
  condition named as the source | conditions: {source: {selector: uniform}} | conditions | 'source'
  more samples than the search's | conditions: {c: {selector: gapft, k: 9}} | conditions.c.k \
| search.k
  misspelt training | conditions: {c: {selector: gapft, training: {rnak: 4}}} \
| conditions.c.training.rnak | rank
  start tokens without the model's \
| conditions: {c: {selector: gapft, training: {start_tokens: 1}}} | conditions.c.training \
| start_tokens

recipe: for_plugins
  misspelt selector | conditions: {c: {selector: gapf}} | 'gapf' | 'gapft'
  missing parameter | conditions: {c: {selector: search_depth}} | 'conditions.c.params' \
| 'search_depth' | 'k'
  unknown parameter | conditions: {c: {selector: search_depth, params: {k: 1, depth: 1}}} \
| 'conditions.c.params' | 'depth'
  slots as a parameter | conditions: {c: {selector: repeated, params: {times: 2, n: 3}}} \
| 'conditions.c.params' | 'n'
  slots of a reference | conditions: {c: {selector: all_verified, n: 4}} | 'conditions.c.n' \
| 'all_verified'
  control with other settings | {conditions: {whole: {selector: search_depth, params: {k: 1}}, \
depth: {selector: search_depth, params: {k: 4}, k: 4}}, experiments: {search_depth: {}}} \
| 'whole' | 'depth'
  odd slots of two halves | {budget: {n: 47}, conditions: [diffuse, concentrated], experiments: \
{allocation: {diffuse: diffuse, concentrated: concentrated}}} | 'experiments.allocation' | budget.n
  unknown condition of an experiment \
| experiments: {allocation: {diffuse: gapft, concentrated: more}} \
| 'experiments.allocation.concentrated' | 'more'
  experiment with one condition twice \
| experiments: {allocation: {diffuse: gapft, concentrated: gapft}} | 'experiments.allocation' \
| 'gapft'
  misspelt experiment | experiments: {scop: {}} | 'scop' | 'scope'
  unknown key of an experiment | experiments: {search_depth: {draws: 1}} \
| 'experiments.search_depth.draws'

option: in_option
  key | --set search.kk=3 | --set search.kk=3 | 'search.kk' | 'search.k'
  key in a value | --set 'search={kk: 3}' | --set search={kk: 3} | 'search.kk'
  key below a value | --set data.task.x=3 | --set data.task.x=3 | 'data.task.x'
  list without brackets | --set seeds=13,21 | --set seeds=13,21 | 'seeds'
  empty part | --set search..k=1 | --set search..k=1
  no value | --set search.k | search.k
  together | --set budget.n=1 --set training.update_groups=90 \
| --set training.update_groups=90 | 'training'
  unknown verifier | --set verifier.name=nope | 'nope'
  unknown backend | --set model.backend=hff | 'hff' | 'hf'
  unknown response rule | --set evidence.keep=shortst | 'shortst' | 'shortest'
  unknown executor | --set executor.name=locl | 'locl' | 'local'
  unknown trainer | --set training.trainer=lor | 'lor' | 'lora'
  unknown condition | --condition gapf | 'gapf' | 'gapft'
  seed twice | --seed 3 --seed 3 | --seed 3 --seed 3 | 'seeds'
  number as a model | --model-args pretrained=3 | --model-args pretrained=3
  model argument without a value | --model-args a=1,b | --model-args b
  unknown model argument | --set model.args.dtyp=float32 | dtyp
  folder without a model | --set model.args.pretrained=EMPTY | EMPTY
  missing plugin | --plugin none.py | none.py
  unknown option | --sett a=b | --sett
  unknown stage | --only serach | --only serach: unknown stage; did you mean
  unknown split | --only search --split audti | --split audti: unknown split | 'audit'
  no limit | --limit 0 --dry-run | limit
  share as a limit | --limit 0.5 --dry-run | limit

option: in_data
  unknown task | --set data.task=gapft_dmo | gapft_dmo | gapft_demo
  split that the task lacks | --set experiments.scaling.calibration=validation | validation_split
  parameter of a verifier | --set 'verifier={name: option_letter, params: {rule: \
frist_explicit}}' | option_letter | 'frist_explicit' | 'first_explicit'
  unknown parameter of a verifier | --set 'verifier={name: option_letter, params: {rulle: x}}' \
| 'option_letter' | 'rulle'

study: in_study
  misspelt key | cels: {} | 'cels' | 'cells'
  no cells | cells: {} | 'cells'
  empty cell | cells: {A: {}} | 'cells.A'
  settings of a run | cells: {A: {run: x, set: {a: 1}}} | 'set'
  cells of one folder | cells: {A b: {run: x}, a/b: {run: y}} | 'a-b'
  unknown reference | reference: gapf | 'gapf'
  condition twice | conditions: [gapft, gapft] | conditions
  path as a name | name: ../../x | 'name'
  unknown published mean | paper: {T: {nonsense: 1}} | 'nonsense'

file: call
  key in a file with options | run kk.yaml --run-dir out --set search.k=3 | kk.yaml | 'search.kk'
  option for a condition | run uniform.yaml --run-dir out --set conditions.c.parms=1 \
| --set conditions.c.parms=1

file: in_option
  plugin that cannot be imported | --plugin broken.py | broken.py

study: call
  different attempts | run attempts.yaml --dry-run --run-dir out | 'a' | 'b' | episode.attempts
  two studies | run a.yaml b.yaml | b.yaml
  option of a run | run study.yaml --condition a | --condition

plugin: in_registration
  name in use | selector | 'gapft', len | 'gapft' | evidence_states
  no function | selector | 'a', 3 | 'a'
  name with a space | selector | 'a b', len | 'a b'
  misspelt option | selector | 'a', len, repeat=True | 'repeats'
  unknown budget | selector | 'a', len, budget=['own'] | budget
  number as a trait | selector | 'a', len, repeats=1 | 'repeats' | found 1
  option of another kind | response rule | 'a', len, last=True | 'last'
  word for a list | sampler | 'a', len, operational='url' | operational
  numbers for words | trainer | 'a', len, needs=[3] | needs
  word for a function | sampler | 'a', len, check='yes' | check

policy: in_policy
  misspelt key | tsks: {toy: {f1: 0.1}} | 'tsks' | 'tasks'
  misspelt margin | tasks: {toy: {f1: {blok: 0.1}}} | 'tasks.toy.f1.blok' \
| mean 'tasks.toy.f1.block'
  negative margin | tasks: {toy: {f1: -0.01}} | 'tasks.toy.f1' | -0.01
  no number | overall: .nan | nan
  boolean | overall: true | True
  nothing | overall: | no margin
  equal margins | overall: {block: 0.1, warn: 0.1} | warn
  margin of a task | tasks: {toy: 0.1} | 'tasks.toy'
  no margins | {}
  unknown task | tasks: {gapft_dmo: {f1: 0.1}} | 'gapft_dmo' | 'gapft_demo'
  unknown metric | tasks: {gapft_demo: {nope: 0.1}} | 'nope'

log: for_logs
  no metrics | empty.jsonl better.jsonl | empty.jsonl, line 1
  verdicts not graded | ungraded.jsonl ungraded.jsonl | ungraded.jsonl | bypass
  samples, one log twice | before.jsonl one.jsonl --common --source-samples better.jsonl \
--source-samples better.jsonl | better.jsonl
  folder with two logs of a task | before.jsonl two | toy | --latest
  other task | t o | other | toy
  contradicting results | before.jsonl c | results_2026-01-01T00-00-00.1.json | 0.25
  unknown direction | before.jsonl range.jsonl --fail-if-worse 0.01 | --higher-is-better \
| --lower-is-better
  earlier comparison | before.jsonl better.jsonl --out done | done | --overwrite
  cluster | before.jsonl better.jsonl --cluster pasage | before.jsonl, line 1 | 'pasage' | 'passage'
  samples, the deployment decodes | before.jsonl better.jsonl --source-samples before.jsonl \
| before.jsonl
  file twice | before.jsonl better.jsonl better.jsonl | better.jsonl
  pattern without a file | before.jsonl 'nowhere*' | nowhere*
  pattern with two logs before | '*e*.jsonl' better.jsonl | *e*.jsonl
  folder without a log | before.jsonl EMPTY | gapft: EMPTY: no logs found
  too many groups | many.jsonl many.jsonl --by question | 1,200
  one cluster | before.jsonl better.jsonl --cluster passage | cluster
  one document with a margin | one.jsonl one.jsonl --fail-if-worse 0.01 | document
  margin that is not a number | before.jsonl better.jsonl --fail-if-worse nan | --fail-if-worse
  folder for JUnit | before.jsonl better.jsonl --fail-if-worse 0.1 --junit EMPTY | EMPTY

log: in_file
  keys of no format | after.jsonl | {"question": 1} | line 1 | question

task: in_task
  misspelt key | keep: shortest | kep: shortest | kep | keep
  misspelt verifier | boxed_math | boxed_meth | 'boxed_meth' | 'boxed_math'
  misspelt response rule | keep: shortest | keep: shortst | 'shortst'
  misspelt split | test_split: test | test_split: tset | tset
  misspelt field of an id | keep: shortest | id: "{{nmae}}" | nmae
  no YAML | task: sums | task: [sums
  conflicting generation | do_sample: false | do_sample: true | do_sample

task: with_task
  missing data file | audit.jsonl | nope.jsonl | nope.jsonl

task: for_task
  multiple choice | gap choice | output_type | multiple_choice
  multiple choice for a run | run --task choice | output_type | multiple_choice
  stock task without training | run --task stock | training_split
  gap: training split | gap stock --split pool | training_split
  gap: task | gap gapft_dmo | gapft_dmo
  gap: filter | gap stock --filter strict | 'strict' | 'strict-match'
  gap: metric | gap stock --metric f1 | 'f1'
  gap: one sample | gap stock --k 1 | --k
  gap: split | gap stock --split test | --split | 'test' | 'audit'
  gap: two tasks | gap stock,choice | stock
  gap: misspelt setting | gap stock --set search.temprature=1 | search.temprature=1 \
| 'search.temperature'
  gap: option of lm_eval | gap stock --batch_size 8 | --batch-size
  metric without its filter | run --task trained --set verifier.params.metric=strict-match \
| exact_match,strict-match
  misspelt filter | run --task trained --set verifier.params.metric=exact_match,strict \
| 'strict-match'

other: call
  run: folder of a run | run begun | is a folder
  compare: rows without a response | compare silent.jsonl --verifier math | silent.jsonl, line 2 \
| no text
  compare: gold that the verifier cannot read | compare target.jsonl --verifier option_letter \
| target.jsonl, line 1 | 'Z9'
  run: nothing | run | RECIPE | --task
  run: misspelt recipe | run dmo | 'dmo' | 'demo'
  run: file of a misspelt recipe | run dmo.yaml | dmo.yaml | 'demo'
  run: unknown recipe | run xyz | xyz | gapft list recipes
  run: stage of no run | run --run-dir nowhere --only states | nowhere
  run: address | run demo --run-dir s3://b/r | s3://b/r
  compare: one log | compare BEFORE | BEFORE | AFTER
  compare: metric | compare BEFORE AFTER --metric nope | 'nope'
  compare: task | compare BEFORE AFTER --task nope | 'nope'
  compare: field of groups | compare BEFORE AFTER --by nope | 'nope'
  compare: field of documents | compare BEFORE AFTER --on nope | 'nope'
  compare: policy | compare BEFORE AFTER --policy nope.yaml | nope.yaml
  compare: two policies | compare BEFORE AFTER --policy p.yaml --fail-if-worse 0.1 | --policy \
| --fail-if-worse
  compare: verdicts without a policy | compare BEFORE AFTER --junit j | --junit
  compare: margin | compare BEFORE AFTER --fail-if-worse -1 | -1
  compare: logs with the example | compare BEFORE --example | --example
  compare: verifier | compare BEFORE --verifier nope | 'nope'
  compare: parameter | compare BEFORE --verifier math:rule | math:rule
  compare: unknown parameter | compare BEFORE --verifier math:x=1 | x
  compare: parameter twice | compare BEFORE --verifier math:x=1,x=2 | x is set twice
  compare: gold | compare BEFORE --verifier math --gold nope | nope
  compare: gold without a verifier | compare BEFORE AFTER --gold x | --gold
  gap: nothing | gap | task
  logs: missing file | run --run-dir out --task gapft_demo --model-args pretrained=bundled:demo \
--set 'search.responses={pool: [no.json]}' --only search | no.json
  export: nothing | export nope --out O | --to
  list | list taks | list taks: unknown kind | 'tasks'
  list: folder of recipes | list recipes --path | --path
  store | store nope | nope
  doctor | doctor nope | nope
"""


def read_table() -> Iterator[tuple[str, Mistake]]:
    """Yield the rows of the table by kind and name."""
    for section in TABLE.strip().split("\n\n"):
        head, *lines = section.splitlines()
        kind, _, describe = head.partition(": ")
        for line in lines:
            name, *arguments = line.strip().split(" | ")
            yield f"{kind}: {name}", globals()[describe](*arguments)


#: Mistakes with files of their own, and those of the table.
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
    **dict(read_table()),
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
