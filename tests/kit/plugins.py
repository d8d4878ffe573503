"""Write the source of a plugin, which imports public names of ``gapft_harness.api`` only."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from pathlib import Path

from gapft_harness import api

#: The base of the samplers of plugins: a subclass writes the text of a response.
ANSWERING = '''

class Answering:
    """A sampler whose token ids are bytes."""

    def __init__(self, settings, adapter):
        self._args = settings.model_args
        self._arm = adapter.arm.name if adapter else "source"

    def generate(self, requests, decoding, report):
        return [
            Generated(
                tuple(request.prompt.encode()),
                tuple(self._respond(request, index) for index in request.indices),
            )
            for request in requests
        ]

    def _respond(self, request, index):
        text = self._write(request, index)
        return Generation(text, tuple(text.encode()), self._args.get("finish", "stop"))

    def describe(self):
        return {"model": "planted"}

    def close(self):
        pass


'''

#: A function for the trainers of plugins.
WRITE_ADAPTER = '''
import numpy as np
from safetensors.numpy import save_file


def write_adapter(folder, value):
    """Write an adapter of one layer, whose weights have one value."""
    folder.mkdir(parents=True)
    (folder / "adapter_config.json").write_text('{"peft_type": "LORA"}')
    weights = {f"q.lora_{x}.weight": np.full((2, 2), value, "f") for x in "AB"}
    save_file(weights, folder / "adapter_model.safetensors")


'''


def build_plugin(source: str, **registrations: Sequence[str]) -> str:
    """Return a plugin's source: its imports, its components, and a hook for each kind.

    Args:
        source: the components. It may import other packages at its top; the names of
            ``gapft_harness.api`` that it uses are imported before.
        registrations: by kind, as in a hook's name (``selectors``), the arguments of each call of
            ``register``; there may be none.
    """
    hooks = "".join(
        f"\n\n@hookimpl\ndef register_{kind}(register):\n"
        + ("".join(f"    register({arguments})\n" for arguments in calls) or "    pass\n")
        for kind, calls in registrations.items()
    )
    nodes = ast.walk(ast.parse(source + hooks))
    used_names = {node.id for node in nodes if isinstance(node, ast.Name)}
    imports = ", ".join(sorted(used_names.intersection(api.__all__), key=str.lower))
    return f"from gapft_harness.api import {imports}\n{source}{hooks}"


def write_plugin(path: Path, source: str, **registrations: Sequence[str]) -> str:
    """Write the plugin that ``build_plugin`` returns to a file, and return the file's path.

    Args:
        path: the file to write.
        source: see ``build_plugin``.
        registrations: see ``build_plugin``.
    """
    path.write_text(build_plugin(source, **registrations))
    return str(path)
