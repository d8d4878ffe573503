"""Logs of Inspect without Inspect. ``tests/compare/test_inspect.py`` reads them with it."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from gapft_harness.core.errors import UserError
from tests.recorded.made import gather_responses, write_lines


def test_missing_inspect_package_names_install_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "inspect_ai.log", None)
    log = write_lines(tmp_path / "log.eval", ["PK"])
    with pytest.raises(UserError, match=r"log.eval: .* pip install 'gapft-harness\[inspect\]'"):
        gather_responses(log)
