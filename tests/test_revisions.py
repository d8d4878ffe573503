"""A hub model at a pinned revision, from a local cache with two revisions."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml

from gapft_harness.core.files import sha256
from gapft_harness.core.records import Arm
from gapft_harness.core.weights import weights_hash
from gapft_harness.run_directory import layout
from gapft_harness.run_directory.directory import RunDirectory
from gapft_harness.run_directory.recorded import read_source
from tests.kit.command import gapft, succeed
from tests.kit.letters import CONTAINS, write_letters
from tests.kit.records import read_run
from tests.kit.tiny_models import write_byte_llama

#: The commits of the two revisions, by their weights' seeds.
COMMITS = {seed: f"{seed + 10}" * 20 for seed in (0, 1)}


class LocalHub:
    """A cache in the hub client's layout, and a recipe that uses its only model."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.model = folder / "hub/models--someone--tiny"
        for seed, commit in COMMITS.items():
            write_byte_llama(self.model / "snapshots" / commit, seed=seed)
        self.env = {"HF_HOME": str(folder), "HF_HUB_CACHE": str(folder / "hub")}
        self.env |= {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1"}
        write_letters(folder, {"pool": 60, "audit": 12})
        (folder / "plugin.py").write_text(CONTAINS)

    def point(self, seed: int) -> None:
        """Point the branch main at a revision; at first the cache has no branch."""
        (self.model / "refs").mkdir(exist_ok=True)
        (self.model / "refs/main").write_text(COMMITS[seed])

    def weights(self, seed: int) -> str:
        """Return the hash of a revision's weights."""
        return weights_hash(self.model / "snapshots" / COMMITS[seed])

    def weights_file(self, seed: int) -> str:
        """Return the hash of the file with a revision's weights."""
        return sha256(self.model / "snapshots" / COMMITS[seed] / "model.safetensors")

    def command(self, revision: str | None) -> tuple[str, ...]:
        """Return the ``gapft run`` command for a revision; None: the branch main."""
        args = {"pretrained": "someone/tiny", "dtype": "float32", "batch_size": 16}
        content = {
            "name": "letters",
            "data": {"task": "letters"},
            "model": {"args": args | ({"revision": revision} if revision else {})},
            "search": {"k": 2, "temperature": 1.0, "top_p": 1.0},
            "conditions": ["gapft"],
            "seeds": [13],
            "training": {"dtype": "float32", "repetitions": 1},
            "statistics": {"replicates": 10},
        }
        (self.folder / "recipe.yaml").write_text(yaml.safe_dump(content))
        options = ("--include-path", "tasks", "--plugin", "plugin.py", "--run-dir", "run")
        return ("run", "recipe.yaml", *options)

    def refused(self, *arguments: str) -> str:
        """Run a command that must be refused; return its error in one line."""
        done = gapft(*arguments, cwd=self.folder, env=self.env)
        assert done.returncode == 2, done.stdout + done.stderr
        return " ".join((done.stdout + done.stderr).split())

    def source(self) -> dict[str, Any]:
        """Read the description of the run's model."""
        return read_source(RunDirectory.open(self.folder / "run"))


@pytest.fixture
def hub(tmp_path: Path) -> LocalHub:
    return LocalHub(tmp_path)


def test_pinned_revision_is_used_and_recorded_everywhere(hub: LocalHub) -> None:
    """The cache has no branch, so code that ignored the revision would find no model."""
    command = hub.command(COMMITS[1])
    missing = succeed(*command, "--dry-run", cwd=hub.folder, env=hub.env).stdout
    assert "missing here\nnothing" in missing
    succeed(*command, cwd=hub.folder, env=hub.env)
    source = hub.source()
    assert (source["revision"], source["weights_sha256"]) == (COMMITS[1], hub.weights(1))
    adapter = hub.folder / "run" / layout.adapter_path(Arm("gapft", 13))
    facts = json.loads((adapter / "training.json").read_text())
    assert (facts["base_revision"], facts["base_sha256"]) == (COMMITS[1], hub.weights(1))
    succeed("verify", "run", "--plugin", "plugin.py", cwd=hub.folder, env=hub.env)

    other = [*hub.command(COMMITS[0]), "--dry-run"]
    assert "model.args.revision" in succeed(*other, cwd=hub.folder, env=hub.env).stdout
    unknown = gapft(
        *hub.command("9" * 40)[:-1], "none", "--dry-run", cwd=hub.folder, env=hub.env
    ).stdout
    assert f"at revision {'9' * 40}" in unknown.partition("missing here")[2]


def test_moved_branch_is_a_different_model(hub: LocalHub) -> None:
    hub.point(0)
    search = (*hub.command(None), "--only", "search")
    succeed(*search, cwd=hub.folder, env=hub.env)
    source = hub.source()
    assert (source["revision"], source["weights_sha256"]) == (COMMITS[0], hub.weights(0))
    hub.point(1)
    done = succeed(*search, cwd=hub.folder, env=hub.env)
    text = " ".join((done.stdout + done.stderr).split())
    assert "model.files.model.safetensors" in text
    assert hub.weights_file(1)[:12] in text
    assert hub.weights_file(0)[:12] in text
    assert hub.source()["weights_sha256"] == hub.weights(1)
    assert hub.weights_file(0)[:12] in json.dumps(read_run(hub.folder / "run")["history"])
    hub.point(0)
    shutil.rmtree(hub.model / "snapshots" / COMMITS[1])
    succeed(*hub.command(None), cwd=hub.folder, env=hub.env)
