"""Runs for a study, and a copy that tests may damage."""

from __future__ import annotations

import shutil

import pytest

from tests.report.written_run import write_run
from tests.study.planted_cells import build_cell, write_study_file


@pytest.fixture(scope="session")
def run_directories(tmp_path_factory):
    """Write two runs: ``runs/a`` and ``runs/b``."""
    folder = tmp_path_factory.mktemp("planted")
    for number, name in enumerate("ab"):
        write_run(folder / "runs" / name, build_cell(number))
    return folder


@pytest.fixture
def folder(run_directories, tmp_path, monkeypatch):
    """Copy the runs, with a study recipe, into the working directory."""
    shutil.copytree(run_directories, tmp_path / "here")
    monkeypatch.chdir(tmp_path / "here")
    write_study_file()
    return tmp_path / "here"
