"""GGUF files are refused before loading, with the command that converts them."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import pytest

from gapft_harness.core.errors import UserError
from gapft_harness.core.gguf import conversion_command
from gapft_harness.recipe.reading import Setting, check_recipe
from tests.kit.command import gapft

WHOLE = b"GGUF" + bytes(60)


def read_refusal(*settings: Setting, **arguments: Any) -> str:
    content = {"name": "x", "data": {"task": "gapft_demo"}, "model": {"args": arguments}}
    with pytest.raises(UserError) as refused:
        check_recipe(content, "recipe r.yaml", settings)
    return str(refused.value)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "m.gguf").write_bytes(WHOLE)
    return tmp_path


def test_refusal_shows_conversion_command(folder: Path) -> None:
    command = conversion_command(str(folder), "m.gguf")
    by_name = read_refusal(pretrained=str(folder), gguf_file="m.gguf")
    assert command in by_name
    assert by_name.startswith("recipe r.yaml: key 'model.args.gguf_file'")
    assert command in read_refusal(pretrained=str(folder / "m.gguf")), "the file as the model"
    assert command in read_refusal(pretrained=str(folder)), "a folder with only this file"
    assert conversion_command("owner/name", "m.gguf") in read_refusal(
        pretrained="owner/name", gguf_file="m.gguf"
    )
    setting = Setting("model.args.gguf_file", "m.gguf", "--model-args gguf_file=m.gguf")
    assert read_refusal(setting, pretrained=str(folder)).startswith(
        "--model-args gguf_file=m.gguf: "
    )


def test_conversion_command_is_valid_shell_and_python(tmp_path: Path) -> None:
    python, option, code = shlex.split(conversion_command("a folder", "it's.gguf"))
    assert (python, option) == ("python", "-c")
    compile(code, "command", "exec")


@pytest.mark.parametrize("file_name", ["other.gguf", "sub/m.gguf"])
def test_missing_file_error_lists_existing_files(folder: Path, file_name: str) -> None:
    message = read_refusal(pretrained=str(folder), gguf_file=file_name)
    assert str(folder / file_name) in message
    assert "m.gguf" in message


@pytest.mark.parametrize("content", [b"", b"GGUF" + bytes(9), b"PK\x03\x04" + bytes(60)])
def test_reports_damaged_file(folder: Path, content: bytes) -> None:
    (folder / "m.gguf").write_bytes(content)
    message = read_refusal(pretrained=str(folder), gguf_file="m.gguf")
    assert "copy it again" in message
    assert "from_pretrained" not in message


def test_run_rejects_gguf_without_files(folder: Path) -> None:
    arguments = f"pretrained={folder},gguf_file=m.gguf"
    done = gapft(
        "run", "--task", "gapft_demo", "--model-args", arguments, "--run-dir", folder / "run"
    )
    assert done.returncode == 2
    assert "gguf_file" in done.stderr
    assert "Traceback" not in done.stderr
    assert not (folder / "run").exists()
