"""An import that is there already, one that was cut short, and files that change meanwhile."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from gapft_harness.core.errors import UserError
from gapft_harness.importing.job import require_not_searched
from gapft_harness.importing.rows import ImportChoice
from gapft_harness.lm_eval_bridge.samplers.retokenizer import Retokenizer
from gapft_harness.run_directory import layout
from gapft_harness.stages.pipeline import run_stages
from tests.command import gapft, succeed
from tests.importing.made import VERDICTS, gather, imported, plain, write
from tests.recording_run import Letters, letters
from tests.verify.tampering import change_manifest


@pytest.fixture
def made(tmp_path: Path) -> Letters:
    return letters(tmp_path, pool=3, audit=3)


def test_the_same_import_alone_goes_on(made: Letters, model: Path) -> None:
    """Other options, or other files, would be ignored: the table is there."""
    file = write(made.folder / "r.jsonl", plain(VERDICTS))
    run = imported(made, model, "run", [file])
    require_not_searched(str(run.path), "pool", ImportChoice([file]))
    for choice, said in (
        (ImportChoice([file], judge=True), "judge: false before, true now"),
        (ImportChoice([file], metric="other"), 'metric: null before, "other" now'),
        (ImportChoice([file], filter="none"), "filter: null before"),
        (ImportChoice([file], on=[("a", "b")]), r'on: \[\] before, \[\["a", "b"\]\] now'),
        (ImportChoice([file], ignore_unknown=True), "ignore_unknown: false before"),
        (ImportChoice([], greedy=file), "greedy: null before"),
    ):
        with pytest.raises(
            UserError, match=rf"pool was imported with other options \(.*{said}.* already"
        ):
            require_not_searched(str(run.path), "pool", choice)
    other = write(made.folder / "other.jsonl", [*plain(VERDICTS), ""])
    for files in ([other], [file, other]):
        with pytest.raises(UserError, match="pool was imported from other files already"):
            require_not_searched(str(run.path), "pool", ImportChoice(files))


def test_imported_responses_are_never_stored_as_generated_ones(made: Letters, model: Path) -> None:
    run = imported(made, model, "run", [write(made.folder / "r.jsonl", plain(VERDICTS))])
    plugin = ("--plugin", "plugin.py")
    done = succeed("store", "other", "--add", "run", *plugin, cwd=made.folder)
    assert "left out: pool/responses.parquet" in done.stdout
    assert not (made.folder / "other").exists()
    change_manifest(run.path, lambda m: m.update(stored={"pool": [f"generate/{'0' * 64}"]}))
    done = gapft("store", "other", "--add", "run", *plugin, cwd=made.folder)
    assert done.returncode == 1
    assert "pool/responses.parquet: was imported" in done.stderr


def test_a_search_takes_away_what_a_killed_import_left(made: Letters, model: Path) -> None:
    run = imported(made, model, "run", [write(made.folder / "r.jsonl", plain(VERDICTS))])
    left = run.path / layout.import_folder("audit")
    left.mkdir(parents=True)
    (left / "0.jsonl").touch()
    run_stages(made.context(run, ("audit",)), ["search"], lambda stage: None)
    assert (run.path / "audit/responses.parquet").exists()
    assert not left.exists()


def test_a_file_that_changes_while_it_is_read_is_refused(
    tokenizer: Retokenizer, tmp_path: Path
) -> None:
    file = write(tmp_path / "r.jsonl", plain(VERDICTS))
    with pytest.raises(UserError, match=f"{file}: was changed while it was read"):
        gather(tokenizer, ImportChoice([file]), lambda done: _append(file))


def _append(file: str) -> None:
    with Path(file).open("a") as stream:
        stream.write("\n")


def test_a_pipe_is_refused_for_what_it_is(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(
        UserError, match=r"is not a regular file \(a pipe\?\).* more than once; write"
    ):
        require_not_searched(str(tmp_path / "run"), "pool", ImportChoice([str(tmp_path / "pipe")]))
    with pytest.raises(UserError, match=r"none\.jsonl: cannot be read: No such file"):
        require_not_searched(
            str(tmp_path / "run"), "pool", ImportChoice([str(tmp_path / "none.jsonl")])
        )
