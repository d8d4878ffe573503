"""Episodes in training sets, the rules in the key of programs' verdicts, and no sandbox."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.kit.changing_run import STAGES, write_changing_run
from tests.kit.command import ROOT
from tests.kit.planted_run import read_selection
from tests.kit.records import read_records
from tests.kit.runs import RunAt
from tests.kit.tampering import read_rows


def test_training_uses_conversation_or_problem_alone(tmp_path: Path) -> None:
    run = write_changing_run(tmp_path / "run", {"gapft": {}, "all_verified": {}})
    out = run.folder / "out"
    for context in ("conversation", "problem"):
        settings = ("episode.attempts=2", f"evidence.context={context}")
        run.run("out", *settings, stages=STAGES[:3])
        responses = {
            (row["problem_id"], row["index"]): row
            for row in read_rows(out / "pool/responses.parquet")
        }
        prompts = {
            row["problem_id"]: row["prompt_ids"] for row in read_rows(out / "pool/problems.parquet")
        }
        continued = set()
        for example in (*read_selection(out, "gapft"), *read_selection(out, "all_verified")):
            response = responses[example["problem_id"], example["response_index"]]
            prompt = prompts[example["problem_id"]]
            conversation = response["context_ids"] or prompt
            assert example["prompt_ids"] == (conversation if context == "conversation" else prompt)
            assert example["response_ids"] == response["token_ids"]
            if response["attempts"]:
                assert b"again" in bytes(response["context_ids"])
                continued.add(example["state"])
        assert continued == {"G", "S"}


@pytest.mark.thorough
def test_rules_are_in_the_key_of_verdicts(run_at: RunAt) -> None:
    """So that verification names other ones, as ``tests/laws/test_tampering.py`` has it."""
    records = read_records(run_at("searched", "demo-code").path)
    keys = [records[split]["made_from"]["settings"]["verifier"] for split in ("pool", "audit")]
    assert [key["rules"] for key in keys] == [{"edition": 4, "prelude": "none"}] * 2


_COMMAND = """
import sys
sys.path.insert(0, {root!r})
from tests.sandbox.confined_machine import LANDLOCK, UNSHARE, refuse_calls
refuse_calls(UNSHARE | LANDLOCK)
from gapft_harness.cli.main import main
sys.argv = ["gapft", "run", "demo-code"]
main()
"""


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="numbers are those of x86_64")
def test_refuses_to_generate_without_a_sandbox(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", _COMMAND.format(root=str(ROOT))],
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 2, done.stderr
    assert "namespaces" in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "runs").exists()
