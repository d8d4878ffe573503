"""Sealed runs to collect, and a copy of them to break."""

from __future__ import annotations

import shutil

import pytest

from tests.study.sealed import build_cell, write_run_directory, write_study_file


@pytest.fixture(scope="session")
def run_directories(tmp_path_factory):
    """Two runs to collect: ``runs/a`` and ``runs/b``."""
    folder = tmp_path_factory.mktemp("sealed")
    for number, name in enumerate("ab"):
        write_run_directory(folder / "runs" / name, build_cell(number))
    return folder


@pytest.fixture
def folder(run_directories, tmp_path, monkeypatch):
    """A copy to break, with a study's recipe, as the working directory."""
    shutil.copytree(run_directories, tmp_path / "here")
    monkeypatch.chdir(tmp_path / "here")
    write_study_file()
    return tmp_path / "here"
