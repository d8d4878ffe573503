"""Episodes of real programs through search, states and selection; refusal without a sandbox."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import yaml

from gapft_harness.recipe.reading import check_recipe
from gapft_harness.run_directory.directory import RunDirectory
from gapft_harness.run_directory.recorded import read_judges
from gapft_harness.sandbox import probe_tiers
from gapft_harness.stages.context import Context
from gapft_harness.stages.pipeline import run_stages
from gapft_harness.stages.verify.run import verify
from tests.kit.local_tasks import build_task
from tests.kit.recording_run import InProcessExecutor
from tests.kit.tampering import forge_record_key
from tests.kit.tiny_models import write_byte_llama

_TASK = build_task(
    "times",
    "verifier: program_tests, "
    "params: {workers: 1, preload: [], limits: {cpu_s: 2, memory_bytes: 268435456}}, "
    'keep: shortest, id: "{{id}}", episode: {attempts: 3, executions: 3}, '
    "gold: {kind: kind, function: function, tests: tests, public: public}, gold_only: [tests]",
    text="{{verb}} a number and print {{factor}} times it.\\n",
    target="{{id}}",
    tokens=64,
)


def fence(program: str) -> str:
    return f"```python\n{program}\n```"


def correct_program(factor: int, more: str = "") -> str:
    return fence(f"print({factor} * int(input())){more}")


WRONG = fence("print(0)")


def public_only_program(factor: int) -> str:
    """Build a program that passes only the public test."""
    return fence(f"input()\nprint({factor})")


def build_responses() -> list[dict[str, Any]]:
    """Build each problem's attempts: the greedy episode and two samples."""
    episodes = {
        "2": [[correct_program(2)], [WRONG, WRONG, WRONG], [WRONG, WRONG, WRONG]],
        "4": [
            [public_only_program(4)],
            [WRONG, WRONG, correct_program(4)],
            [WRONG, correct_program(4, "  # four")],
        ],
    }
    return [
        {"id": number, "index": "greedy" if row == 0 else row - 1, "attempt": n, "text": text}
        for number, rows in episodes.items()
        for row, attempts in enumerate(rows)
        for n, text in enumerate(attempts, start=1)
    ]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if not any(outcome.holds for outcome in probe_tiers()):
        pytest.skip("no sandbox tier holds on this machine: NOT TESTED")
    folder_path = tmp_path_factory.mktemp("times")
    (folder_path / "times.yaml").write_text(_TASK)
    problems = [
        {
            "id": str(f),
            "factor": f,
            "verb": verb,
            "kind": "stdin",
            "function": None,
            "tests": [{"input": "1", "output": str(f)}, {"input": "70", "output": str(70 * f)}],
            "public": 1,
        }
        for verb in ("Read", "Take")
        for f in (2, 4)
    ]
    for split, of_split in (("pool", problems[:2]), ("audit", problems[2:])):
        (folder_path / f"{split}.jsonl").write_text("".join(json.dumps(p) + "\n" for p in of_split))
    write_byte_llama(folder_path / "model")
    recorded = [
        record | {"id": problem.id}
        for problem in load_problems(folder_path)
        for record in build_responses()
        if record["id"] == problem.id.partition("-")[0]
    ]
    (folder_path / "responses.jsonl").write_text("".join(json.dumps(r) + "\n" for r in recorded))
    return folder_path


def load_problems(folder: Path) -> Sequence[Any]:
    from gapft_harness.lm_eval_bridge.discovery import load_task

    task = load_task("times", [folder])
    return [*task.read_pool(), *task.read_audit()]


def build_recipe(folder: Path, **keys: Any) -> dict[str, Any]:
    return {
        "name": "times",
        "data": {"task": "times"},
        "model": {
            "backend": "recorded",
            "args": {
                "pretrained": str(folder / "model"),
                "responses": str(folder / "responses.jsonl"),
            },
        },
        "search": {"k": 2, "chunk": 3},
        "conditions": ["gapft"],
        "seeds": [13],
        **keys,
    }


def search(folder: Path, path: Path, stages: Sequence[str] = (), **keys: Any) -> RunDirectory:
    run = RunDirectory.create_or_open(path, check_recipe(build_recipe(folder, **keys), "test"))
    context = Context(run, InProcessExecutor(), (), [str(folder)])
    run_stages(context, ["search", *stages], lambda stage: None)
    return run


@pytest.fixture(scope="module")
def run(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> RunDirectory:
    return search(folder, tmp_path_factory.mktemp("run") / "r", ["states", "select"])


def test_programs_judged_by_other_rules_are_a_difference(folder: Path, tmp_path: Path) -> None:
    """The rules are in the key of the verdicts."""
    run = search(folder, tmp_path / "r")
    rules = {"edition": 4, "prelude": "none"}
    assert [judge["rules"] for judge in read_judges(run).values()] == [rules, rules]
    earlier = {**rules, "edition": 3}
    assert verify(run.path).differences == []
    for split in ("pool", "audit"):
        forge_record_key(run.path, split, ("settings", "verifier", "rules"), earlier)
    for split, line in zip(("pool", "audit"), verify(run.path).differences, strict=True):
        assert f"{split}: settings.verifier.rules.edition is 3" in line


def test_training_uses_conversation_or_problem_alone(
    folder: Path, run: RunDirectory, tmp_path: Path
) -> None:
    (example,) = pq.read_table(run.path / "selections/gapft-seed13.parquet").to_pylist()
    prompt = "Read a number and print 4 times it.\n"
    feedback = (
        "Your program failed public test 1 of 1: wrong answer.\nInput:\n1\nExpected output:\n4\n"
        "Your output:\n0\nWrite the whole corrected program in one fenced Python block."
    )
    turn = f"{WRONG}\n\n{feedback}\n\n"
    assert decode_ids(example["prompt_ids"]) == prompt + turn + turn
    assert decode_ids(example["response_ids"]) == correct_program(4)
    alone = search(folder, tmp_path / "r", ["states", "select"], evidence={"context": "problem"})
    (example,) = pq.read_table(alone.path / "selections/gapft-seed13.parquet").to_pylist()
    assert (decode_ids(example["prompt_ids"]), decode_ids(example["response_ids"])) == (
        prompt,
        correct_program(4),
    )


def decode_ids(ids: Sequence[int]) -> str:
    """Decode ids of ``byte_llama``'s tokenizer (ASCII)."""
    from tokenizers import pre_tokenizers

    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    text = "".join(alphabet[i - 3] for i in ids)
    return text.replace("Ġ", " ").replace("Ċ", "\n")


_COMMAND = """
import sys
sys.path.insert(0, {root!r})
from tests.sandbox.confined_machine import LANDLOCK, UNSHARE, refuse_calls
refuse_calls(UNSHARE | LANDLOCK)
from gapft_harness.cli.main import main
sys.argv = ["gapft", *{arguments!r}]
main()
"""


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="numbers are those of x86_64")
def test_refuses_to_generate_without_a_sandbox(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "r.yaml").write_text(yaml.safe_dump(build_recipe(folder)))
    arguments = ["run", "r.yaml", "--include-path", str(folder)]
    code = _COMMAND.format(root=str(Path(__file__).parents[1]), arguments=arguments)
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 2, done.stderr
    assert "namespaces" in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "runs/times").exists()
