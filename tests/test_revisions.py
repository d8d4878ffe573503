"""A hub model at a pinned revision, from a local cache that has no branch."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gapft_harness.core.records import Arm
from gapft_harness.core.weights import weights_hash
from gapft_harness.run_directory import layout
from gapft_harness.run_directory.directory import RunDirectory
from gapft_harness.run_directory.recorded import read_source
from tests.kit.command import gapft, succeed
from tests.kit.letters import prepare_letters_run
from tests.kit.tiny_models import write_byte_llama

#: The commits of two revisions, by their weights' seeds.
COMMITS = {seed: f"{seed + 10}" * 20 for seed in (0, 1)}


@pytest.mark.thorough
def test_pinned_revision_is_used_and_recorded_everywhere(tmp_path: Path) -> None:
    """Code that ignored the revision would find no model."""
    snapshots = tmp_path / "hub/models--someone--tiny/snapshots"
    for seed, commit in COMMITS.items():
        write_byte_llama(snapshots / commit, seed=seed)
    env = {"HF_HOME": str(tmp_path), "HF_HUB_CACHE": str(tmp_path / "hub")}
    env |= {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1"}
    command = prepare_letters_run(tmp_path)
    limits = ("search.k=2", "conditions=[gapft]", "seeds=[13]", "statistics.replicates=10")

    def choose(commit: str, run: str) -> list[str]:
        settings = ("model.args.pretrained=someone/tiny", f"model.args.revision='{commit}'")
        words = [word for setting in (*limits, *settings) for word in ("--set", setting)]
        return [*command, run, *words]

    plan = succeed(*choose(COMMITS[1], "run"), "--dry-run", cwd=tmp_path, env=env).stdout
    assert "missing here\nnothing" in plan
    succeed(*choose(COMMITS[1], "run"), cwd=tmp_path, env=env)
    expected = (COMMITS[1], weights_hash(snapshots / COMMITS[1]))
    source = read_source(RunDirectory.open(tmp_path / "run"))
    assert (source["revision"], source["weights_sha256"]) == expected
    adapter = tmp_path / "run" / layout.adapter_path(Arm("gapft", 13))
    facts = json.loads((adapter / "training.json").read_text())
    assert (facts["base_revision"], facts["base_sha256"]) == expected
    succeed("verify", "run", "--plugin", "plugin.py", cwd=tmp_path, env=env)

    other = succeed(*choose(COMMITS[0], "run"), "--dry-run", cwd=tmp_path, env=env).stdout
    assert "model.args.revision" in other
    unknown = gapft(*choose("9" * 40, "none"), "--dry-run", cwd=tmp_path, env=env).stdout
    assert f"at revision {'9' * 40}" in unknown.partition("missing here")[2]
