"""Values from plugins are checked on entry; the error names plugin, hook and line."""

from __future__ import annotations

import os
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from gapft_harness.core.errors import GapftError, PluginError
from gapft_harness.core.records import Arm, Decoding, Verdict
from gapft_harness.hooks.checked import CheckedExecutor
from gapft_harness.hooks.manager import Plugins, load_plugins
from gapft_harness.hooks.protocols import Job, SamplerSettings, TrainingJob
from gapft_harness.report.reading.columns import read_columns
from gapft_harness.run_directory.tables import JudgedResponse, read_judged, response_schema
from gapft_harness.stages.generation.episodes import build_episodes
from gapft_harness.stages.generation.sealing import closing_verifier, read_description
from gapft_harness.stages.search.states import compute_state
from gapft_harness.stages.selection.choosing import run_selector
from gapft_harness.stages.train.job import _run_trainer
from gapft_harness.verification.judging import check_golds, verify_unique
from tests.asking import generate_all, make_request
from tests.kit.command import gapft, succeed
from tests.pools import build_pool

HEAD = """\
from gapft_harness.api import Evidence, Generated, Generation, Response, Verdict, hookimpl


"""


def load_plugin(folder: Path, hook: str, name: str, code: str) -> tuple[Plugins, str]:
    """Load a plugin whose object ``made`` has this code; also return its file."""
    path = folder / "mine.py"
    path.write_text(
        f"{HEAD}{code}\n\n\n@hookimpl\ndef {hook}(register):\n    register('{name}', made)\n"
    )
    return load_plugins([str(path)]), str(path)


def check_blame(
    error: pytest.ExceptionInfo[Any], kind: str, hook: str, path: str, line: bool
) -> None:
    """Check that the message is one line that names plugin, hook and line."""
    message = str(error.value)
    assert f"{kind} 'mine' (plugin {path}, hook {hook})" in message
    assert "\n" not in message
    assert bool(re.search(rf"(at|defined at) {re.escape(path)}, line \d+", message)) == line


def build_class(method: str, body: str) -> str:
    return f"class made:\n    def {method}:\n        {body}\n"


VERDICTS = (
    "return [Verdict('maybe')] * len(texts)",
    "return [Verdict(None)] * len(texts)",
    "return [Verdict(['pass'])] * len(texts)",
    "return [Verdict('pass', float('nan'))] * len(texts)",
    "return [Verdict('pass')]",
    "return [True, False]",
    "return None",
    "raise SystemExit",
    "1 / 0",
)


@pytest.mark.parametrize("body", VERDICTS)
def test_rejects_wrong_verdicts(tmp_path: Path, body: str) -> None:
    loaded, path = load_plugin(
        tmp_path, "register_verifiers", "mine", build_class("verify(self, texts, golds)", body)
    )
    with pytest.raises(PluginError) as caught:
        verify_unique(loaded.create_verifier("mine", {}), ["a", "b"], ["a", "b"])
    check_blame(caught, "verifier", "register_verifiers", path, True)


def test_repairs_reasons_and_copies_lists(
    tmp_path: Path,
) -> None:
    body = "texts.sort(); return [Verdict('pass', 'said \\ud800')] * len(texts)"
    code = build_class("verify(self, texts, golds)", body)
    loaded, _ = load_plugin(tmp_path, "register_verifiers", "mine", code)
    verdicts = verify_unique(loaded.create_verifier("mine", {}), ["b", "a"], [1, 1])
    assert verdicts == [Verdict("pass", "said �")] * 2


@pytest.mark.parametrize("body", ["return None", "raise SystemExit(0)", "return 3"])
def test_rejects_wrong_results_of_verifier_methods(tmp_path: Path, body: str) -> None:
    code = "class made:\n    def verify(self, texts, golds):\n        return []\n" + "".join(
        f"    def {method}:\n        {body}\n"
        for method in ("check_gold(self, gold)", "feedback(self, texts, golds)", "describe(self)")
    )
    loaded, path = load_plugin(tmp_path, "register_verifiers", "mine", code)
    verifier = loaded.create_verifier("mine", {})
    for call in (
        lambda: check_golds(verifier, [("gold", "pool.jsonl, line 1")]),
        lambda: build_episodes(verifier, 2, "mine").feedback(["a"], ["b"]),
        lambda: read_description(verifier),
    ):
        with pytest.raises(PluginError) as caught:
            call()
        check_blame(caught, "verifier", "register_verifiers", path, True)


def test_rejects_verifier_without_verify_or_working_close(tmp_path: Path) -> None:
    loaded, path = load_plugin(tmp_path, "register_verifiers", "mine", "made = lambda: 3")
    with pytest.raises(PluginError) as caught:
        loaded.create_verifier("mine", {})
    check_blame(caught, "verifier", "register_verifiers", path, True)
    code = build_class("verify(self, texts, golds)", "return []") + (
        "    def close(self):\n        raise SystemExit(1)\n"
    )
    (tmp_path / "other").mkdir()
    loaded, path = load_plugin(tmp_path / "other", "register_verifiers", "mine", code)
    with pytest.raises(PluginError) as caught, closing_verifier(loaded.create_verifier("mine", {})):
        pass
    check_blame(caught, "verifier", "register_verifiers", path, True)


ANSWERS = (
    "None",
    "[]",
    "[1, 2]",
    "[Generated((1,), ())] * 2",
    "[Generated((1,), None)] * 2",
    "[Generated((0.5,), ())] * 2",
    "[Generated((), ('text',))] * 2",
    "[Generated((), (Generation(None, (), 'stop'),))] * 2",
    "[Generated((), (Generation('\\ud800', (), 'stop'),))] * 2",
    "[Generated((), (Generation('a', (), 'eos'),))] * 2",
    "[Generated((), (Generation('a', (), 'stop', 'guess'),))] * 2",
    "[Generated((), (Generation('a', (-1,), 'stop'),))] * 2",
    "[Generated((), (Generation('a', (2**31,), 'stop'),))] * 2",
    "[Generated((), (Generation('a', (True,), 'stop'),))] * 2",
    "1 / 0",
    "exit()",
)


@pytest.mark.parametrize("answer", ANSWERS)
def test_rejects_wrong_sampler_answers(tmp_path: Path, answer: str) -> None:
    code = (
        "class made:\n    def __init__(self, settings, adapter):\n        pass\n"
        f"    def generate(self, requests, decoding, report):\n        return {answer}\n"
        "    def describe(self):\n        return {'loss': float('nan')}\n"
        "    def close(self):\n        raise SystemExit\n"
    )
    loaded, path = load_plugin(tmp_path, "register_samplers", "mine", code)
    sampler = loaded.create_sampler(SamplerSettings("mine", {}), None)
    requests = [make_request(name, "?", (0,)) for name in "pq"]
    with pytest.raises(PluginError) as caught:
        generate_all(sampler, requests, Decoding(True, 4), 0)
    check_blame(caught, "sampler", "register_samplers", path, True)
    for call in (sampler.describe, sampler.close):
        with pytest.raises(PluginError) as caught:
            call()
        check_blame(caught, "sampler", "register_samplers", path, True)


@pytest.mark.parametrize(
    "rule",
    [
        "return None",
        "return passing[0].text",
        "passing.append(Response('p', 9, '', (), 'stop', 0)); return passing[-1]",
        "raise SystemExit",
        "1 / 0",
    ],
)
def test_rejects_wrong_response_rule_result(tmp_path: Path, rule: str) -> None:
    code = f"def made(passing):\n    {rule}\n"
    loaded, path = load_plugin(tmp_path, "register_response_rules", "mine", code)
    response = build_pool(0, 1).recovered[0].response
    assert response is not None
    judged = [
        JudgedResponse(replace(response, index=-1), Verdict("fail")),
        JudgedResponse(replace(response, index=0), Verdict("pass")),
    ]
    with pytest.raises(PluginError) as caught:
        compute_state("S000", judged, 1, loaded.get("response rule", "mine"))
    check_blame(caught, "response rule", "register_response_rules", path, True)


@pytest.mark.parametrize(
    "returned",
    ["None", "[1, 2]", "['S000'] * 2", "[Evidence([], 'S', None, (), 0, 0)] * 2", "exit()", "1/0"],
)
def test_rejects_wrong_selector_result(tmp_path: Path, returned: str) -> None:
    code = f"def made(pool, n, rng):\n    return {returned}\n"
    loaded, path = load_plugin(tmp_path, "register_selectors", "mine", code)
    with pytest.raises(PluginError) as caught:
        run_selector(*loaded.find_selector("mine"), build_pool(0, 4), 2, Arm("mine", 13))
    check_blame(caught, "selector", "register_selectors", path, True)


@pytest.mark.parametrize(
    "facts", ["None", "[1]", "{'loss': float('nan')}", "{'model': object()}", "exit()", "1 / 0"]
)
@pytest.mark.parametrize("together", [False, True])
def test_rejects_wrong_trainer_facts(tmp_path: Path, facts: str, together: bool) -> None:
    code = f"def made(job):\n    return {facts}\n"
    if together:
        code += f"\ndef together(jobs):\n    yield {facts}\n\nmade.together = together\n"
    loaded, path = load_plugin(tmp_path, "register_trainers", "mine", code)
    job = TrainingJob(Arm("gapft", 13), (), {}, {}, tmp_path)
    with pytest.raises(PluginError) as caught:
        list(_run_trainer(loaded.get("trainer", "mine"), [job]))
    check_blame(caught, "trainer", "register_trainers", path, True)


@pytest.mark.parametrize(("results", "count"), [("iter([])", 1), ("iter([{}, {}])", 1)])
def test_rejects_wrong_number_of_trained_arms(tmp_path: Path, results: str, count: int) -> None:
    code = f"def made(job):\n    return {{}}\n\nmade.together = lambda jobs: {results}\n"
    loaded, path = load_plugin(tmp_path, "register_trainers", "mine", code)
    job = TrainingJob(Arm("gapft", 13), (), {}, {}, tmp_path)
    with pytest.raises(PluginError) as caught:
        list(_run_trainer(loaded.get("trainer", "mine"), [job] * count))
    check_blame(caught, "trainer", "register_trainers", path, True)


@pytest.mark.parametrize("results", ["None", "[]", "[None]", "[{}, {}]", "exit()"])
def test_rejects_wrong_executor_results(tmp_path: Path, results: str) -> None:
    code = (
        "class made:\n    def __init__(self, settings, files):\n        pass\n"
        f"    def run(self, jobs, progress):\n        return {results}\n"
        "    def close(self):\n        pass\n"
    )
    loaded, path = load_plugin(tmp_path, "register_executors", "mine", code)
    executor = loaded.create_executor({"name": "mine"}, ())
    with pytest.raises(PluginError) as caught:
        CheckedExecutor(loaded.get("executor", "mine"), executor).run(
            [Job("search pool", "m:f", {})], lambda *_: None
        )
    check_blame(caught, "executor", "register_executors", path, True)


@pytest.mark.parametrize("text", ["None", "b'text'", "'\\ud800'", "exit()", "1 / 0"])
def test_rejects_wrong_report_section(tmp_path: Path, text: str) -> None:
    code = f"def made(results):\n    return {text}\n"
    loaded, path = load_plugin(tmp_path, "register_report_sections", "mine", code)
    ((_, render),) = loaded.list_report_sections()
    with pytest.raises(PluginError) as caught:
        render({})
    check_blame(caught, "report section", "register_report_sections", path, True)


BROKEN = {
    "raises": "import os\nraise RuntimeError('no luck')\n",
    "leaves": "raise SystemExit(0)\n",
    "hook_leaves": f"{HEAD}@hookimpl\ndef register_verifiers(register):\n    exit(0)\n",
}
WHOLE = f"{HEAD}@hookimpl\ndef register_selectors(register):\n    register('whole', len)\n"


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Return an environment with three broken packages and a working one, as pip installs them."""
    folder = tmp_path_factory.mktemp("site")
    for name, code in {**BROKEN, "whole": WHOLE}.items():
        (folder / f"gapft_{name}").mkdir()
        (folder / f"gapft_{name}/__init__.py").write_text("")
        (folder / f"gapft_{name}/plugin.py").write_text(code)
        facts = folder / f"gapft_{name}-1.dist-info"
        facts.mkdir()
        (facts / "METADATA").write_text(f"Metadata-Version: 2.1\nName: gapft-{name}\nVersion: 1\n")
        point = f"[gapft_harness]\n{name} = gapft_{name}.plugin\n"
        (facts / "entry_points.txt").write_text(point)
    return {**os.environ, "PYTHONPATH": str(folder)}


def test_doctor_lists_broken_packages_and_all_else(environment: dict[str, str]) -> None:
    output = succeed("doctor", env=environment).stdout
    healthy = succeed("doctor").stdout
    sections = [line for line in healthy.splitlines() if not line.startswith(" ")]
    assert [line for line in output.splitlines() if not line.startswith(" ")] == sections
    for name, what in (("raises", "RuntimeError: no luck"), ("leaves", "SystemExit: 0")):
        (line,) = [x for x in output.splitlines() if f"plugin {name} of package gapft-{name}" in x]
        assert what in line
        assert f"gapft_{name}/plugin.py, line" in line
    assert "plugin hook_leaves (package gapft-hook_leaves): register_verifiers failed" in output
    original, after = (int(re.findall(r"(\d+) registered", text)[0]) for text in (healthy, output))
    assert after == original + 1  # of the working package


@pytest.mark.parametrize("command", [("list", "plugins"), ("run", "demo", "--dry-run")])
def test_other_commands_stop_and_name_them(
    environment: dict[str, str], command: tuple[str, ...], tmp_path: Path
) -> None:
    done = gapft(*command, env=environment, cwd=tmp_path)
    assert done.returncode == 2
    assert done.stdout == ""
    assert "Traceback" not in done.stderr
    for name in BROKEN:
        assert f"gapft-{name}" in done.stderr


def test_reports_file_with_invalid_status(tmp_path: Path) -> None:
    row = {
        "problem_id": "p1",
        "index": -1,
        "text": "t",
        "token_ids": [1],
        "finish_reason": "stop",
        "seed": 0,
        "tokens_from": "generator",
        "attempts": [],
        "context_ids": [],
        "status": "maybe",
        "reason": "",
    }
    path = tmp_path / "responses.parquet"
    pq.write_table(pa.Table.from_pylist([row], schema=response_schema()), path)
    expected = re.escape(f"{path}") + ".*'maybe'"
    with pytest.raises(GapftError, match=expected):
        read_columns(path, ("problem_id", "status"))
    with pytest.raises(GapftError, match=expected):
        list(read_judged(path))


def test_run_continues_after_verifier_is_fixed(
    tmp_path: Path,
) -> None:
    code = build_class("verify(self, texts, golds)", "return [Verdict('maybe') for _ in texts]")
    path = Path(load_plugin(tmp_path, "register_verifiers", "mine", code)[1])
    words = ["--run-dir", "run", "--only", "search", "--split", "pool", "--plugin", str(path)]
    keys = ["verifier.name=mine", "data.pool_limit=6", "search.k=2"]
    sets = [word for key in keys for word in ("--set", key)]
    stopped = gapft("run", "demo", *words, *sets, cwd=tmp_path)
    assert stopped.returncode == 2
    assert f"verifier 'mine' (plugin {path}, hook register_verifiers)" in stopped.stderr
    assert "'maybe'" in stopped.stderr
    assert f"{path}, line " in stopped.stderr
    assert "Traceback" not in stopped.stderr
    stored = {path: path.read_bytes() for path in tmp_path.glob(".store/generate/*/*.jsonl")}
    assert not (tmp_path / "run/pool/responses.parquet").exists()
    path.write_text(path.read_text().replace("maybe", "fail"))
    succeed("run", "demo", *words, *sets, cwd=tmp_path)
    texts = read_columns(tmp_path / "run/pool/responses.parquet", ("text", "status"))
    assert texts["status"] == ["fail"] * 18
    generated = b"".join(stored.values())
    assert all(f'"{text}"'.encode() in generated for text in texts["text"] if text.isalnum())
    assert set(tmp_path.glob(".store/generate/*/*.jsonl")) == set(stored), (
        "nothing is generated again"
    )
