"""Follow README like a reader: write its files and run its commands in order in one folder."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from tests.kit.patience import COMMAND_S


@dataclass(frozen=True)
class Block:
    """A fenced block: its language, the file to write (or none), and its text."""

    language: str
    title: str
    text: str


def read_blocks(path: Path) -> list[Block]:
    """Return all fenced blocks of a Markdown file, in order."""
    matches = re.findall(r"^```(\w+)(?: title=(\S+))?\n(.*?)^```$", path.read_text(), re.M | re.S)
    return [Block(*block) for block in matches]


def run_section(path: Path, heading: str, folder: Path) -> None:
    """Run the blocks of one section of a page, up to the next level-2 heading."""
    text = path.read_text().partition(f"\n{heading}\n")[2].partition("\n## ")[0]
    assert text, f"{path}: no section {heading!r}"
    section = folder / "section.md"
    section.write_text(text)
    run_blocks(section, folder)


def run_blocks(path: Path, folder: Path) -> None:
    """Write titled blocks as files and run ``bash`` blocks, but not ``console`` blocks."""
    scripts = Path(sys.executable).parent
    env = {
        **os.environ,
        "PATH": f"{scripts}{os.pathsep}{os.environ['PATH']}",
        "OMP_NUM_THREADS": "1",
        "HF_HUB_OFFLINE": "1",
        "HF_HOME": str(folder / ".hf"),
        "COLUMNS": "120",
    }
    for block in read_blocks(path):
        if block.title:
            (folder / block.title).write_text(block.text)
        elif block.language == "bash":
            done = subprocess.run(
                ["bash", "-euo", "pipefail", "-c", block.text],
                cwd=folder,
                env=env,
                capture_output=True,
                text=True,
                timeout=COMMAND_S,
                check=False,
            )
            with (folder / "log.txt").open("a") as log:
                log.write(f"$ {block.text}{done.stdout}{done.stderr}\n")
            assert done.returncode == 0, f"{block.text}\n{done.stdout}\n{done.stderr}"
