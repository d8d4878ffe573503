"""Refuse models in GGUF format, with the command that converts them to a model folder.

Training needs the weights in an ordinary model folder, and search and audit must use the same
weights.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gapft_harness.core.errors import UserError

#: The first bytes of every GGUF file.
_MAGIC = b"GGUF"
#: Length of the header in bytes: magic, version, number of tensors, number of metadata entries.
_HEADER = 24


def refuse_gguf(arguments: Mapping[str, Any], source: str, options: Mapping[str, str]) -> None:
    """Refuse model arguments that name a GGUF file, before anything is loaded.

    Args:
        arguments: ``pretrained``, which may be a GGUF file or a folder with GGUF files only, and
            optionally ``gguf_file``.
        source: the source of the arguments, for the start of the message.
        options: recipe key -> the command-line option that set it, named instead of ``source``.

    Raises:
        UserError: the arguments name a GGUF file; the message has the command to convert it.
    """
    folder, name, key = Path(str(arguments.get("pretrained"))), arguments.get("gguf_file"), ""
    if name is not None:
        key = "gguf_file"
    elif folder.suffix == ".gguf":
        folder, name, key = folder.parent, folder.name, "pretrained"
    elif folder.is_dir() and not (folder / "config.json").exists():
        name = next((file.name for file in sorted(folder.glob("*.gguf"))), None)
        key = "pretrained"
    if name is None:
        return
    where = f"{options.get(f'model.args.{key}', source)}: key 'model.args.{key}'"
    file = folder / str(name)
    if folder.is_dir() or not looks_like_hub_name(str(folder)):
        if not file.is_file():
            others = ", ".join(other.name for other in sorted(folder.glob("*.gguf"))) or "none"
            raise UserError(f"{where}: found no file {file}; GGUF files in that folder: {others}")
        if fault := _find_damage(file):
            raise UserError(f"{where}: {file} {fault}; copy it again from its source")
    raise UserError(
        f"{where}: found the GGUF file {name!r}; expected a model folder, which search, training "
        "and audit can share. Convert the file once, then give pretrained=MODEL:\n"
        f"  pip install gguf\n  {conversion_command(str(folder), str(name))}"
    )


def looks_like_hub_name(name: str) -> bool:
    """Check whether a name has the form of a hub model: NAME or OWNER/NAME."""
    return not name.startswith((".", "/", "~")) and name.count("/") <= 1


def conversion_command(folder: str, name: str, output: str = "MODEL") -> str:
    """Return the shell command that writes a GGUF file's weights, dequantised, to a folder."""
    code = (
        "from transformers import AutoModelForCausalLM as M, AutoTokenizer as T; "
        f"a = dict(pretrained_model_name_or_path={json.dumps(folder)}, "
        f"gguf_file={json.dumps(name)}); "
        'm = M.from_pretrained(**a, dtype="bfloat16"); m.hf_quantizer = None; '
        'vars(m.config).pop("quantization_config", None); '
        f"m.save_pretrained({json.dumps(output)}); "
        f"T.from_pretrained(**a).save_pretrained({json.dumps(output)})"
    )
    return f"python -c {shlex.quote(code)}"


def _find_damage(file: Path) -> str:
    """Describe the fault in the header of a GGUF file; empty if the header is intact."""
    with file.open("rb") as content:
        first = content.read(_HEADER)
    if first[:4] != _MAGIC:
        return f"is not a GGUF file: it begins with {first[:4]!r}, expected {_MAGIC!r}"
    if len(first) < _HEADER:
        return f"is truncated: it has {len(first)} bytes"
    return ""
