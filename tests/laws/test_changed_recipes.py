"""The law of changed recipes: a change makes exactly the steps whose key contains it.

Every row is a change of a finished run and the work that it needs: what is generated, judged and
trained. The dry run foretells this work, the run's output names the changed key, the result is that
of a fresh run, and a return to the earlier recipe needs no work.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from gapft_harness.hooks.manager import load_plugins
from tests.kit.changing_run import (
    ChangingRun,
    Work,
    copy_changing_run,
    read_outputs,
    write_changing_run,
)
from tests.kit.command import ROOT, parse_section
from tests.kit.report_tables import read_results

ARMS = ("gapft-seed13", "uniform-seed13", "own-seed13")


def judge(*decodes: str) -> frozenset[str]:
    return frozenset(f"judge {decode}" for decode in decodes)


def generate(*decodes: str) -> frozenset[str]:
    """Return the names of generating decodes and judging them."""
    return frozenset(decodes) | judge(*decodes)


def audit(*arms: str) -> frozenset[str]:
    return generate(*(f"{arm} audit decode" for arm in arms))


def train(*arms: str) -> frozenset[str]:
    """Return the names of training arms and auditing them."""
    return frozenset(f"train {arm}" for arm in arms) | audit(*arms)


NOTHING: frozenset[str] = frozenset()
DECODES = ("source pool decode", "source audit decode")
SAMPLES = ("source pool samples", "source audit samples")
SEARCH = generate(*DECODES, *SAMPLES)
JUDGEMENTS = judge(*DECODES, *SAMPLES, *(f"{arm} audit decode" for arm in ARMS))


@dataclass(frozen=True)
class Change:
    """A change of a finished run.

    Attributes:
        name: its name.
        work: the names of the work that it needs; see ``ChangingRun.take_work``.
        settings: values of ``--set``.
        before: settings that the finished run already has.
        edit: edits the run's files, if the change is not a setting.
        reason: what the run's output names; empty if nothing is to be named.
        alike: other settings of which a dry run must foretell the same work.
    """

    name: str
    work: frozenset[str]
    settings: tuple[str, ...] = ()
    before: tuple[str, ...] = ()
    edit: Callable[[Path], object] = lambda folder: None
    reason: str = ""
    alike: tuple[str, ...] = ()


def set_key(
    setting: str,
    work: frozenset[str],
    *more: str,
    before: tuple[str, ...] = (),
    alike: tuple[str, ...] = (),
) -> Change:
    """Describe a changed setting; the run's output names its key if it causes work."""
    key = setting.partition("=")[0]
    reason = ".".join(key.split(".")[:2]) if work else ""
    settings = (*before, setting, *more)
    return Change(key, work, settings, before, reason=reason, alike=alike)


def edit_file(file: str, old: str, new: str, work: frozenset[str]) -> Change:
    """Describe an edit of a file; an empty ``old`` appends ``new``."""

    def edit(folder: Path) -> None:
        text = (folder / file).read_text()
        assert old in text
        changed_text = text.replace(old, new) if old else text + new
        (folder / file).write_text(changed_text)

    return Change(f"{file}: {new.strip()[:20]}", work, edit=edit)


def flip_last_bit(folder: Path, file: str) -> None:
    content = (folder / file).read_bytes()
    (folder / file).write_bytes(content[:-1] + bytes([content[-1] ^ 1]))


def install_version(folder: Path, library: str) -> None:
    """Make a library appear in another version: packages are first looked for in the folder."""
    (folder / f"{library}-99.0.dist-info").mkdir()
    text = f"Metadata-Version: 2.1\nName: {library}\nVersion: 99.0\n"
    (folder / f"{library}-99.0.dist-info/METADATA").write_text(text)


def edit_without_effect(folder: Path) -> None:
    """Add comments to files that no response, verdict or adapter depends on, and reword a gold."""
    task = folder / "tasks/letters.yaml"
    task.write_text(task.read_text().replace("{{answer}}", "{{answer or 'a'}}"))
    plugins = [f"{name}/{name}.py" for name in ("selector", "rule", "executor")]
    for file in ("tasks/letters.yaml", "recipe.yaml", *plugins):
        (folder / file).write_text((folder / file).read_text() + "# a comment\n")


def write_other_task(folder: Path) -> None:
    text = (folder / "tasks/letters.yaml").read_text()
    text = text.replace("task: letters", "task: others").replace("{{question}} ", "{{question}}: ")
    (folder / "tasks/others.yaml").write_text(text)


EVERYTHING = SEARCH | train(*ARMS)
#: The same answers by another route: nothing is trained.
GENERATIONS = SEARCH | audit(*ARMS)

CHANGES = [
    # data and task
    set_key("data.pool_limit=30", generate(DECODES[0], SAMPLES[0]) | train(*ARMS)),
    set_key("data.audit_limit=20", audit(*ARMS)),
    set_key("data.deduplicate=true", generate(DECODES[0], SAMPLES[0])),
    Change(
        "data.task", EVERYTHING, ("data.task=others",), edit=write_other_task, reason="data.task"
    ),
    edit_file(
        "tasks/letters.yaml",
        '"{{answer}}"',
        "\"{{answer if '4' in question else 'a'}}\"",
        JUDGEMENTS | train(*ARMS),
    ),
    # model
    set_key("model.backend=again", GENERATIONS, alike=("search.chunk=10",)),
    Change(
        "model weights", EVERYTHING, edit=partial(flip_last_bit, file="model/model.safetensors")
    ),
    edit_file("model/tokenizer_config.json", "{", "{ ", EVERYTHING),
    # verifier
    set_key(
        "verifier.name=lenient",
        JUDGEMENTS | train(*ARMS),
        alike=("verifier.params.word='!!!!'",),
    ),
    edit_file("words.txt", "", "!!!!", JUDGEMENTS | train(*ARMS)),
    # search
    set_key("search.k=8", generate(*SAMPLES) | train(*ARMS)),
    set_key(
        "search.temperature=0.5",
        generate(*SAMPLES) | train(*ARMS),
        alike=("search.top_p=0.5", "search.top_k=7", "search.seed=1"),
    ),
    set_key(
        "search.max_gen_toks=11",
        EVERYTHING,
        alike=(
            "model.args.dtype=float32",
            "model.chat_template=true",
            "model.system_instruction=Hm.",
            "model.start_tokens=1",
        ),
    ),
    set_key(
        "search.deployment.temperature=0.5",
        generate(*DECODES) | train(*ARMS),
        "search.deployment.top_p=0.9",
        "search.deployment.top_k=9",
    ),
    set_key("episode.attempts=2", EVERYTHING),
    set_key("episode.executions=3", judge(*DECODES, *(f"{arm} audit decode" for arm in ARMS))),
    # evidence, budgets and conditions
    set_key(
        "evidence.keep=first",
        train(*ARMS),
        alike=("budget.n=5", "budget.replay=2", "budget.selection_seed=5"),
    ),
    set_key("evidence.context=problem", train(*ARMS), before=("episode.attempts=2",)),
    set_key("seeds=[13,21]", train(*(arm.replace("13", "21") for arm in ARMS))),
    Change(
        "a new condition",
        train("more-seed13"),
        ("conditions={gapft: {}, uniform: {}, own: {}, more: {selector: gapft, n: 4}}",),
    ),
    # what steps read besides settings
    edit_file("sampler/sampler.py", "", "# a comment\n", GENERATIONS),
    edit_file("verifier/verifier.py", "", "# a comment\n", JUDGEMENTS),
    edit_file("trainer/trainer.py", "", "# a comment\n", frozenset(f"train {arm}" for arm in ARMS)),
    edit_file(
        "selector/selector.py",
        "pool.verified",
        "pool.recovered",
        train("own-seed13"),
    ),
    edit_file("rule/rule.py", "max(", "min(", train(*ARMS)),
]

#: Settings that change no step of these runs; all of them are changed at once. Those of data and
#: prompts have an effect only through problems and prompts, which are the same.
NEUTRAL = (
    "description=other", "notes=[other]", "data.drop_shared=true", "data.limit_takes=first",
    "model.fewshot_as_multiturn=false", "budget.token_tolerance=0.99",
    "budget.position_tolerance=0.99", "executor.workers=3", "executor.threads=2",
    "executor.memory_gb=1", "executor.gpus=0", "executor.address=auto",
    "executor.checkpoint_steps=5", "statistics.replicates=30", "statistics.items=nested",
    "statistics.seed=5",
)  # fmt: skip
CHANGES.append(
    Change(
        "neutral settings",
        NOTHING,
        NEUTRAL,
        edit=edit_without_effect,
        alike=("data.keep_shared=true",),
    )
)

#: Other values of the settings of a condition.
CONDITION_KEYS = {"selector": "gapft", "params": {"offset": 1}, "n": 5, "k": 2, "replicate": 1}

#: Other values of the section ``training``, which a condition may have too.
TRAINING_KEYS = {
    "trainer": "again", "rank": 4, "alpha": 32, "dropout": 0.1, "target_modules": ["q_proj"],
    "learning_rate": 0.001, "schedule": "cosine", "warmup_steps": 1, "weight_decay": 0.1,
    "clip_norm": 2.0, "micro_batch": 1, "accumulation": 4, "padding_free": True, "max_tokens": 4096,
    "update_groups": 2, "repetitions": 3, "start_tokens": 1, "max_length": 1024,
    "too_long": "truncate", "normalization": "sequence_mean", "supervise_eos": False,
    "dtype": "float32", "gradient_checkpointing": True,
}  # fmt: skip

#: Conditions that experiments compare.
CONTROLS = {
    "depth_0": {"selector": "search_depth", "params": {"k": 0}},
    "depth_2": {"selector": "search_depth", "params": {"k": 2}},
    "none": {"selector": "randomized_inclusion", "params": {"share": 0, "within": 1}},
    "half": {"selector": "randomized_inclusion", "params": {"share": 0.5, "within": 1}},
    "gold": {"selector": "gold_labels", "params": {"answer_only": False}},
    "core_0": {"selector": "core_depth", "params": {"k": 0}, "n": "verified"},
    "core_2": {"selector": "core_depth", "params": {"k": 2}, "n": "verified"},
    "once": {"selector": "repeated", "params": {"times": 1}},
    "twice": {"selector": "repeated", "params": {"times": 2}},
    "whole": {"selector": "uniform", "n": "verified"},
    "again": {"selector": "uniform_with_replacement", "n": "verified"},
    "diffuse": {},
    "concentrated": {},
}
EXPERIMENTS = {
    "scaling": {"calibration": "validation", "tolerance": 0.9},
    "scope": {"k": [2, 4]},
    "stability": {"sets": 3, "k": 2},
    "search_depth": {},
    "randomized_inclusion": {},
    "gold_labels": {},
    "shared_core": {"position_tolerance": 0.9},
    "coverage": {},
    "full_pool": {},
    "allocation": {"diffuse": "diffuse", "concentrated": "concentrated"},
}
#: Settings of experiments that need no other response.
NEUTRAL_EXPERIMENTS = (
    "experiments.scope.k=[1,3]", "experiments.scope.adapters=scaled",
    "experiments.stability.adapters=scaled", "experiments.search_depth.permutations=50",
    "experiments.randomized_inclusion.permutations=50", "experiments.gold_labels.permutations=50",
    "experiments.shared_core.permutations=50", "experiments.shared_core.position_tolerance=0.8",
    "experiments.scaling.level=0.06",
)  # fmt: skip

#: ``make test`` has these rows, one for each kind of step; ``make test-all`` has all.
QUICK = {
    "data.pool_limit", "model.backend", "verifier.name", "search.k", "evidence.keep",
    "a new condition", "verifier/verifier.py: # a comment", "selector/selector.py: pool.recovered",
    "neutral settings",
}  # fmt: skip
ROWS = [
    pytest.param(change, id=change.name, marks=[] if change.name in QUICK else pytest.mark.thorough)
    for change in CHANGES
]

#: Keys in no row, each with the reason.
ELSEWHERE = {
    "name": "a run keeps its name; test_recipes_share_work",
    "conditions": "test_every_setting_of_a_condition_repeats_it_alone",
    "executor.name": "every executor makes the same run: tests/executors",
    "tracker": "it watches a training",
    "paper": "printed figures, with which results are compared",
    "experiments": "test_experiments_add_their_own_work",
    "experiments.scaling.calibration": "test_experiments_add_their_own_work",
    "experiments.scaling.tolerance": "test_experiments_add_their_own_work",
    "experiments.stability.k": "test_experiments_add_their_own_work",
    "experiments.allocation.diffuse": "test_experiments_add_their_own_work",
    "experiments.allocation.concentrated": "test_experiments_add_their_own_work",
    "experiments.online.reference": "needs the trainer grpo",
    "training.kernels": "needs a GPU",
    **{
        f"search.responses.{key}": "tests/recorded/test_again.py: its model is a log"
        for key in ["pool", "audit", "greedy", "on", "metric", "filter", "judge", "ignore_unknown"]
    },
}
#: Keys that only the trainer grpo reads.
GRPO = "training.grpo."


def test_every_experiment_is_added() -> None:
    """Two have a run of their own: tests/training/test_grpo.py, tests/test_matched_diversity.py."""
    registered = {entry.name for entry in load_plugins().all() if entry.kind == "experiment"}
    assert registered == {*EXPERIMENTS, "online", "matched_diversity"}


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> ChangingRun:
    """A finished run of two bundled conditions and a plugin's, without a report."""
    folder = tmp_path_factory.mktemp("plain") / "run"
    made = write_changing_run(folder, {"gapft": {}, "uniform": {}, "own": {}})
    made.run("out")
    assert set(made.take_work()) == EVERYTHING
    return made


@pytest.fixture
def run(plain: ChangingRun, tmp_path_factory: pytest.TempPathFactory) -> ChangingRun:
    """A copy of the run, always in the same place."""
    return copy_changing_run(plain, tmp_path_factory.getbasetemp() / "changing")


def restore_files(run: ChangingRun, plain: ChangingRun) -> None:
    """Undo the edits of a run's files."""
    kept = ("out", ".store")
    for path in run.folder.iterdir():
        if path.name not in kept:
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    ignored = shutil.ignore_patterns(*kept)
    shutil.copytree(plain.folder, run.folder, ignore=ignored, dirs_exist_ok=True)


def join_output(done: subprocess.CompletedProcess[str]) -> str:
    return " ".join((done.stdout + done.stderr).split())


def count_work(work: Work, *names: str) -> int:
    return sum(count for name, count in work.items() if name.startswith(names))


def read_forecast(done: subprocess.CompletedProcess[str]) -> dict[str, str]:
    """Return a dry run's lines on steps by their subject, without reasons."""
    lines = parse_section(done.stdout, "steps")
    return {subject: re.sub(r" \(.*|: .*", "", line) for subject, line in lines.items()}


def check_forecast(line: str, count: int, is_bound: bool = False) -> None:
    """Compare a dry run's line on new work with the number of things that were made.

    Args:
        line: the line, without its subject.
        count: the number of things.
        is_bound: whether the line counts the most that may be made, even if it does not say so.
    """
    bound = re.search(r"at most (\d[\d,]*)|(\d[\d,]*) known after", line)
    exact = bound or re.search(r"(\d[\d,]*) new", line)
    foretold = int((exact[1] or exact[2]).replace(",", "")) if exact else 0
    if bound or is_bound:
        assert count <= foretold, line
    else:
        assert count == foretold, line


def check_forecasts(forecast: dict[str, str], work: Work, change: Change) -> None:
    """Compare a dry run's lines on new work with the work that was done."""
    for split in ("pool", "audit"):
        made = count_work(work, f"source {split}")
        ends_early = change.name == "episode.attempts"  # an episode, once it has passed
        check_forecast(forecast[f"search {split}"], made, is_bound=ends_early)
    check_forecast(forecast["train"], count_work(work, "train"))


@pytest.mark.parametrize("change", ROWS)
def test_change_makes_what_depends_on_it(
    run: ChangingRun, plain: ChangingRun, change: Change
) -> None:
    before = read_outputs(run.folder / "out")
    if change.before:
        run.run("out", *change.before)
        run.take_work()
    change.edit(run.folder)
    dry_run = run.run("out", *change.settings, stages=(), options=("--dry-run",))
    for setting in change.alike:
        other = run.run("out", setting, stages=(), options=("--dry-run",))
        assert read_forecast(other) == read_forecast(dry_run), setting
    assert run.take_work() == {}
    done = run.run("out", *change.settings)
    work = run.take_work()
    assert frozenset(work) == change.work
    assert change.reason in join_output(done)
    check_forecasts(parse_section(dry_run.stdout, "steps"), work, change)
    changed = read_outputs(run.folder / "out")
    if not change.work:
        run.run("other", *change.settings)
        assert run.take_work() == {}, "in a new run directory"

    restore_files(run, plain)
    run.run("out")
    assert run.take_work() == {}, "the earlier recipe returns"
    assert {name: read_outputs(run.folder / "out")[name] for name in before} == before

    change.edit(run.folder)
    shutil.rmtree(run.folder / "out")
    shutil.rmtree(run.folder / ".store")
    run.run("out", *change.settings)
    fresh = read_outputs(run.folder / "out")
    assert {name: changed[name] for name in fresh} == fresh
    assert changed.keys() == fresh.keys()


def test_every_recipe_key_is_in_a_row() -> None:
    """A new key needs a row, or a reason."""
    page = (ROOT / "docs/recipe-keys.md").read_text("utf-8")
    keys, experiment_keys, condition_keys = (
        re.findall(
            r"^\| `([\w.]+)` \|", page.partition(f"## {title}\n")[2].partition("\n## ")[0], re.M
        )
        for title in ("Keys", "Keys of experiments", "Keys of a condition")
    )
    settings = [setting for change in CHANGES for setting in (*change.settings, *change.alike)]
    settings += [*NEUTRAL_EXPERIMENTS, MORE_SETS, *(f"training.{key}=" for key in TRAINING_KEYS)]
    changed = {setting.partition("=")[0] for setting in settings}
    missing = [
        key
        for key in [*keys, *experiment_keys]
        if not key.startswith(GRPO)
        and key not in ELSEWHERE
        and not any(f"{name}.".startswith(f"{key}.") for name in changed)
    ]
    assert missing == []
    assert set(ELSEWHERE) <= {*keys, *experiment_keys}
    assert set(condition_keys) == {*CONDITION_KEYS, "training"}


def test_every_setting_of_a_condition_repeats_it_alone(tmp_path: Path) -> None:
    """One condition for each key, all of which are changed by one command."""
    own: dict[str, Any] = {"selector": "own"}
    before = dict.fromkeys((*CONDITION_KEYS, *TRAINING_KEYS), own)
    changed = {key: {**own, key: value} for key, value in CONDITION_KEYS.items()}
    changed |= {key: {**own, "training": {key: value}} for key, value in TRAINING_KEYS.items()}
    before["max_tokens"] = {**own, "training": {"padding_free": True}}
    changed["max_tokens"]["training"]["padding_free"] = True
    run = write_changing_run(tmp_path / "run", {"gapft": {}, **before})
    run.run("out", "model.start_tokens=2")
    run.take_work()
    conditions = f"conditions={json.dumps({'gapft': {}, **changed})}"
    done = run.run("out", "model.start_tokens=2", conditions)
    expected = train(*(f"{name}-seed13" for name in changed))
    expected -= audit("replicate-seed13")  # this trainer repeats the adapter, which has decodes
    assert frozenset(run.take_work()) == expected
    output = join_output(done)
    names = {*re.findall(r"conditions\.(\w+)\.", output)}
    assert names == set(changed)


#: More samples of the audit than before.
MORE_SETS = "experiments.stability.sets=4"


@pytest.mark.thorough
def test_experiments_add_their_own_work(run: ChangingRun) -> None:
    conditions = {"gapft": {}, "uniform": {}, "own": {}, **CONTROLS}
    settings = (
        f"conditions={json.dumps(conditions)}", f"experiments={json.dumps(EXPERIMENTS)}",
    )  # fmt: skip
    run.run("out", *settings, stages=())
    work = run.take_work()
    arms = [f"{name}-seed13" for name in CONTROLS]
    scaled = generate(*(f"{arm} held decode" for arm in [*ARMS, *arms]))
    halves = [f"{name}-seed13 pool decode" for name in ("diffuse", "concentrated")]
    decodes = generate("source held decode", "source audit samples", *halves)
    expected = train(*arms) | scaled | decodes
    assert frozenset(work) == expected | audit(*ARMS), "old arms are audited at other scales"
    assert work["source audit samples"] == 40 * (3 * 2 - 4), "beyond those of the search"
    tables = {name.partition("_")[0] for name in read_results(run.folder / "out")}
    assert {name.partition("_")[0] for name in EXPERIMENTS} - {"coverage"} <= tables

    run.run("out", *settings, *NEUTRAL_EXPERIMENTS, stages=())
    assert run.take_work() == {}
    run.run("out", *settings, MORE_SETS, stages=())
    work = run.take_work()
    assert frozenset(work) == generate("source audit samples")
    run.run("out", stages=())
    assert run.take_work() == {}
    assert run.verify("out").returncode == 0


def test_more_samples_generate_the_new_ones(run: ChangingRun) -> None:
    """K 8 → 16 in the same run directory, → 19 in another one."""
    run.run("out", "search.k=8", stages=("search",))
    run.take_work()
    for name, k, new in (("out", 16, 8), ("other", 19, 3)):
        run.run(name, f"search.k={k}", stages=("search",))
        work = run.take_work()
        assert frozenset(work) == generate(*SAMPLES)
        assert [work[decode] for decode in SAMPLES] == [64 * new, 40 * new]


@pytest.mark.parametrize(("library", "expected"), [("torch", EVERYTHING), ("sympy", JUDGEMENTS)])
def test_other_library_version_repeats_its_steps(
    run: ChangingRun, library: str, expected: frozenset[str]
) -> None:
    """In a new run; a finished run stays as it is."""
    install_version(run.folder, library)
    run.run("other")
    assert frozenset(run.take_work()) == expected
    run.run("out")
    assert run.take_work() == {}


def test_recipes_share_work(run: ChangingRun) -> None:
    run.run("other", "name=other")
    assert run.take_work() == {}
    assert read_outputs(run.folder / "other") == read_outputs(run.folder / "out")
    run.run("third", "name=third", "budget.n=5")
    assert frozenset(run.take_work()) == train(*ARMS)


def test_copy_verifies_without_its_store(run: ChangingRun) -> None:
    shutil.copytree(run.folder / "out", run.folder / "copies/out")
    shutil.rmtree(run.folder / "out")
    shutil.rmtree(run.folder / ".store")
    assert run.verify("copies/out").returncode == 0
    assert not (run.folder / "copies/.store").exists()


def test_settings_of_the_report_change_the_report_alone(run: ChangingRun) -> None:
    """And the report names the settings that were changed after results existed."""
    results = []
    outputs = read_outputs(run.folder / "out")
    for settings in ((), ("statistics.replicates=30", "conditions=[gapft]"), ()):
        run.run("out", *settings, stages=())
        assert run.take_work() == {}
        assert read_outputs(run.folder / "out") == outputs
        results.append(read_results(run.folder / "out"))
    assert results[0]["contrasts"] == results[2]["contrasts"] != results[1]["contrasts"]
    late = [str(content["warnings"]) for content in results]
    assert ["statistics.replicates" in text for text in late] == [False, True, True]
    for content in results:
        names = [row["condition"] for row in content["conditions"]]
        assert names == ["source", "gapft", "uniform", "own"], "trained conditions stay"


@pytest.mark.parametrize(
    ("stage", "setting"),
    [
        ("train", "training.repetitions=3"),
        ("select", "data.pool_limit=20"),
        ("select", "verifier.params.timeout_s=4"),
        ("select", "search.max_gen_toks=30"),
        ("states", "episode.attempts=2"),
    ],
)
def test_stage_alone_uses_the_recipe_of_the_run(run: ChangingRun, stage: str, setting: str) -> None:
    outputs = read_outputs(run.folder / "out")
    done = run.try_run("out", setting, stages=(stage,))
    assert done.returncode == 2
    assert setting.partition("=")[0] in done.stderr
    assert run.take_work() == {}
    assert read_outputs(run.folder / "out") == outputs
