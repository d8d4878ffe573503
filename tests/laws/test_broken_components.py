"""The law of broken plugins, for every kind of component.

A component that returns what its kind does not permit ends the command with status 2 and one line.
One that raises, or tries to end the process, ends it with status 1 and the traceback, which its
author needs. Both name the kind, the component, its plugin, its hook and the line of its code. A
new kind of component needs a row in ``COMPONENTS``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from gapft_harness.hooks import manager
from gapft_harness.hooks.registration import KINDS, find_hook
from tests.kit.command import call
from tests.kit.planted_run import PlantedTask, write_planted_task
from tests.kit.plugins import WRITE_ADAPTER, build_plugin


@dataclass(frozen=True)
class Component:
    """A kind of component, and how a run uses one.

    Attributes:
        source: the code of a component named ``made``, with BODY in the method that is broken.
        setting: the setting of the recipe that chooses it; none for what every run uses.
        bodies: faulty bodies of the method.
        arguments: the arguments of ``register``.
    """

    source: str
    setting: str
    bodies: tuple[str, ...]
    arguments: str = '"mine", made'


def build_class(method: str, *others: str, base: str = "") -> str:
    """Return a class with the faulty method, and methods of one line."""
    head = f"class made{base}:\n    def {method}:\n        BODY\n"
    return head + "".join(f"    def {other}\n" for other in others)


#: Bodies that fail, or try to end the process.
RAISING = ("1 / 0", "raise SystemExit(0)")


def return_each(*values: str) -> tuple[str, ...]:
    """Return bodies that return each value, or fail or exit before they do."""
    return (*(f"return {value}" for value in values), *RAISING)


SAMPLER = (
    "__init__(self, settings, adapter): pass",
    "describe(self): return {}",
    "close(self): pass",
)
EXPERIMENT = "    name = 'mine'\n"

COMPONENTS = {
    "verifier": Component(
        build_class("verify(self, responses, golds)"),
        "verifier.name=mine",
        return_each(
            "[Verdict('maybe')] * len(responses)",
            "[Verdict(None)] * len(responses)",
            "[Verdict('pass', float('nan'))] * len(responses)",
            "[True] * len(responses)",
            "[Verdict('pass')]",
            "None",
        ),
    ),
    "verifier without a method": Component("made = lambda: 3", "verifier.name=mine", ("",)),
    "verifier's check of golds": Component(
        build_class("check_gold(self, gold)", "verify(self, responses, golds): return []"),
        "verifier.name=mine",
        return_each("3"),
    ),
    "verifier's description": Component(
        build_class(
            "describe(self)",
            "verify(self, responses, golds): return [Verdict('fail') for _ in responses]",
        ),
        "verifier.name=mine",
        return_each("None", "{'loss': float('nan')}"),
    ),
    "sampler": Component(
        build_class("generate(self, requests, decoding, report)", *SAMPLER),
        "model.backend=mine",
        return_each(
            "None",
            "[]",
            "[1] * len(requests)",
            "[Generated((1,), ())] * len(requests)",
            "[Generated((0.5,), (Generation('a', (), 'stop'),) * 5)] * len(requests)",
            "[Generated((), ('text',) * 5)] * len(requests)",
            "[Generated((), (Generation(None, (), 'stop'),) * 5)] * len(requests)",
            "[Generated((), (Generation(chr(0xD800), (), 'stop'),) * 5)] * len(requests)",
            "[Generated((), (Generation('a', (), 'eos'),) * 5)] * len(requests)",
            "[Generated((), (Generation('a', (), 'stop', 'guess'),) * 5)] * len(requests)",
            "[Generated((), (Generation('a', (2**31,), 'stop'),) * 5)] * len(requests)",
        ),
    ),
    "sampler's description": Component(
        build_class("describe(self)", SAMPLER[0], SAMPLER[2], "generate(self, *_): return []"),
        "model.backend=mine",
        return_each("None", "{'loss': float('nan')}"),
    ),
    "response rule": Component(
        "def made(passing):\n    BODY\n",
        "evidence.keep=mine",
        return_each("None", "passing[0].text", "Response('p', 9, '', (), 'stop', 0)"),
    ),
    "selector": Component(
        "def made(pool, n, rng):\n    BODY\n",
        "conditions=[mine]",
        return_each(
            "None",
            "pool.recovered[: n - 1]",
            "[1] * n",
            "[entry.problem_id for entry in pool.recovered[:n]]",
            "[Evidence([], 'S', None, (), 0, 0)] * n",
            "[__import__('dataclasses').replace(e, problem_id='x') for e in pool.recovered[:n]]",
        ),
    ),
    "selector with its own budget": Component(
        "def made(pool, n, rng):\n    BODY\n",
        "conditions=[mine]",
        return_each("[]"),
        '"mine", made, budget="own"',
    ),
    # it returns wrong facts, and has written an adapter nevertheless
    "trainer": Component(
        f"{WRITE_ADAPTER}def made(job):\n    write_adapter(job.output, 1)\n    BODY\n",
        "training.trainer=mine",
        return_each("None", "[1]", "{'loss': float('nan')}", "{'model': object()}"),
    ),
    "trainer of several arms": Component(
        WRITE_ADAPTER
        + "def together(jobs):\n    for job in jobs:\n        write_adapter(job.output, 1)\n"
        "    BODY\n\n\ndef made(job):\n    return {}\n\n\nmade.together = together\n",
        "training.trainer=mine",
        return_each("iter([])", "iter([{}] * (len(jobs) + 1))", "iter([None] * len(jobs))"),
    ),
    "executor": Component(
        build_class(
            "run(self, jobs, progress)", SAMPLER[0].replace("adapter", "files"), SAMPLER[2]
        ),
        "executor.name=mine",
        return_each("None", "[]", "[None] * len(jobs)", "[{}] * (len(jobs) + 1)"),
    ),
    "experiment": Component(
        build_class("__init__(self)", base="(Experiment)") + EXPERIMENT,
        "experiments={mine: {}}",
        RAISING,
    ),
    "experiment of another class": Component(
        "class made:\n" + EXPERIMENT, "experiments={mine: {}}", ("",)
    ),
    "experiment's name": Component(
        "class made(Experiment):\n    name = 'other'\n", "experiments={mine: {}}", ("",)
    ),
    "experiment's faults": Component(
        build_class("faults(self, recipe)", base="(Experiment)") + EXPERIMENT,
        "experiments={mine: {}}",
        return_each("'one line'", "[3]"),
    ),
    "experiment's steps": Component(
        build_class("steps(self, view)", base="(Experiment)") + EXPERIMENT,
        "experiments={mine: {}}",
        (
            *return_each("['a file']"),
            "yield ['a file']",
            "yield {'mine/x': 3}",
            "yield [view.step('x.json', len)]",
            "yield [view.step('../x', len)]",
            "yield [view.step('adapters/x', len)]",
            "yield [view.step('mine/x', lambda output: None)]",
        ),
    ),
    "experiment's tables": Component(
        build_class("tables(self, *_)", "read(self, *_): return 1", base="(Experiment)")
        + EXPERIMENT,
        "experiments={mine: {}}",
        return_each(
            "['text']",
            "[Table('mine', [Column('a')], [{'a': float('nan')}])]",
            "[Table('../x', [Column('a')], [{'a': 1}])]",
        ),
    ),
    "log reader": Component(
        "def made(path):\n    BODY\n",
        "",
        (*RAISING, "yield {'doc': 1}", "yield 3"),
        '"mine", made, recognises=lambda path: path.suffix == ".mine"',
    ),
}
FAULTS = [(name, body) for name, component in COMPONENTS.items() for body in component.bodies]


def find_kind(name: str) -> str:
    """Return the kind of component that a row's name begins with."""
    return max((kind for kind in KINDS if name.startswith(kind)), key=len)


def write_component(path: Path, name: str, body: str) -> None:
    """Write the plugin with a row's component."""
    component, kind = COMPONENTS[name], find_kind(name)
    hook = find_hook(kind)
    arguments = {hook.removeprefix("register_"): [component.arguments]}
    path.write_text(build_plugin(component.source.replace("BODY", body), **arguments))


@pytest.fixture(scope="module")
def task(tmp_path_factory: pytest.TempPathFactory) -> PlantedTask:
    """A task without models, whose runs reuse each other's stored work."""
    task = write_planted_task(tmp_path_factory.mktemp("broken"), range(40), range(40, 60))
    task.write_recipe("recipe", budget={"n": 4, "replay": 0}, conditions=["gapft"])
    return task


@pytest.fixture
def use_component(
    task: PlantedTask, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Callable[..., CompletedProcess[str]]:
    """Return a function that runs the command that uses a row's component."""
    monkeypatch.chdir(task.folder)

    def run(name: str, body: str) -> CompletedProcess[str]:
        write_component(tmp_path / "mine.py", name, body)
        plugins = ("--plugin", tmp_path / "mine.py")
        if name == "log reader":
            (tmp_path / "a.mine").write_text("?")
            return call("compare", *[tmp_path / "a.mine"] * 2, *plugins)
        setting = COMPONENTS[name].setting
        return call(
            *("run", "recipe.yaml", "--run-dir", tmp_path.name, "--include-path", "tasks"),
            *("--plugin", "plugin.py", *plugins),
            *(("--set", setting) if setting else ()),
        )

    return run


@pytest.mark.parametrize(("name", "body"), FAULTS)
def test_broken_component_is_named(
    name: str, body: str, use_component: Callable[..., CompletedProcess[str]], tmp_path: Path
) -> None:
    done = use_component(name, body)
    kind, plugin = find_kind(name), tmp_path / "mine.py"
    hook = find_hook(kind)
    if "Traceback" in done.stderr:
        # the status 1 of gapft compare means a worse model
        assert done.returncode == (2 if kind == "log reader" else 1), done.stderr
        start = f"Raised by {kind} "
    else:
        assert done.returncode == 2, done.stderr
        start = "gapft: "
    (line,) = [line for line in done.stderr.splitlines() if line.startswith(start)]
    for culprit in (f"{kind} 'mine'", f"plugin {plugin}", hook, f"{plugin}, line "):
        assert culprit in line
    if body in RAISING:
        assert f'File "{plugin}", line ' in done.stderr
        assert body in done.stderr


def test_every_kind_has_a_row() -> None:
    assert {find_kind(name) for name in COMPONENTS} == set(KINDS)


#: Installed packages: their modules, and whether they work.
PACKAGES = {
    "raises": "raise RuntimeError('no luck')\n",
    "leaves": "raise SystemExit(0)\n",
    "hook_leaves": build_plugin("", selectors=['"a", exit(0)']),
    "works": build_plugin("", selectors=['"works", len']),
}


@pytest.fixture
def broken_packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Put packages with plugins on the path, as pip installs them; return those that fail."""
    manager._load_cached.cache_clear()  # earlier tests may have loaded plugins in this process
    for name, code in PACKAGES.items():
        (tmp_path / f"gapft_{name}").mkdir()
        (tmp_path / f"gapft_{name}/__init__.py").write_text("")
        (tmp_path / f"gapft_{name}/plugin.py").write_text(code)
        facts = tmp_path / f"gapft_{name}-1.dist-info"
        facts.mkdir()
        (facts / "METADATA").write_text(f"Metadata-Version: 2.1\nName: gapft-{name}\nVersion: 1\n")
        point = f"[gapft_harness]\n{name} = gapft_{name}.plugin\n"
        (facts / "entry_points.txt").write_text(point)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.chdir(tmp_path)
    return [f"gapft-{name}" for name in PACKAGES if name != "works"]


def test_doctor_lists_broken_packages_and_all_else(broken_packages: list[str]) -> None:
    done = call("doctor")
    assert done.returncode == 0
    for package in broken_packages:
        assert package in done.stdout
    assert "gapft-works" not in done.stdout


@pytest.mark.parametrize("command", ["list plugins", "run demo --dry-run"])
def test_other_commands_stop_and_name_broken_packages(
    command: str, broken_packages: list[str]
) -> None:
    done = call(*command.split())
    assert done.returncode == 2
    assert done.stdout == ""
    assert "Traceback" not in done.stderr
    for package in broken_packages:
        assert package in done.stderr
