"""What responses depend on, as JSON values, for their keys in the store."""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gapft_harness.core.extras import installed
from gapft_harness.core.numerics import describe_environment
from gapft_harness.core.records import Adapter
from gapft_harness.core.weights import model_files, weights_folder, weights_hash
from gapft_harness.hooks.manager import Plugins
from gapft_harness.hooks.protocols import SamplerSettings, Verifier
from gapft_harness.hooks.registered import Registered, SamplerTraits
from gapft_harness.recipe.recipe import binding
from gapft_harness.stages.generation.sealing import description_of
from gapft_harness.store.digests import Digests
from gapft_harness.store.store import read_json
from gapft_harness.version import __version__

#: Libraries whose minor versions may change what a model generates.
_LIBRARIES = ("torch", "transformers", "tokenizers", "peft", "lm_eval")

#: Libraries whose minor versions may change a verdict, or what a program that is judged does.
_JUDGING = ("math-verify", "latex2sympy2_extended", "sympy", "reasoning-gym", "lm_eval", "numpy")

#: What a sampler says of a model whose files are not known here, as far as it tells models apart.
SAID_OF_MODELS = ("weights_sha256", "model", "revision", "responses_sha256", "start_ids")

#: Keys of an adapter's config that say where its base is, not what it computes.
_PLACES = ("base_model_name_or_path", "revision")


def describe_sampler(
    settings: SamplerSettings, plugins: Plugins, adapter: Adapter | None
) -> tuple[dict[str, Any], bool]:
    """Describe the model that a sampler asks, without loading it.

    Args:
        settings: what the sampler is made with.
        plugins: has the sampler.
        adapter: put on the model; None: the source model.

    Returns:
        JSON values, equal wherever the same model lies; and whether its files are known. They
        are not before a download, and never where a server has them.
    """
    entry = plugins.get("sampler", settings.backend)
    arguments = {
        key: value
        for key, value in binding(settings.backend, settings.model_args, plugins).items()
        if key != "pretrained" and value is not None
    }
    digests = Digests()
    put_on = None if adapter is None else describe_adapter(Path(adapter.path))
    if adapter is not None and (entry.code or not entry.declared(SamplerTraits).generates):
        put_on = {**(put_on or {}), "arm": adapter.arm.name}  # it may go by the arm's name
    model, is_known = describe_model(settings.model_args, digests)
    return {
        "backend": settings.backend,
        "code": describe_code(entry, digests),
        "model": model,
        "arguments": {key: describe_argument(value, digests) for key, value in arguments.items()},
        "chat_template": settings.chat_template,
        "system_instruction": settings.system_instruction,
        "start_tokens": settings.start_tokens,
        "adapter": put_on,
        "libraries": describe_libraries((*_LIBRARIES, settings.backend)),
        "accelerators": describe_accelerators(),
        "environment": describe_environment(("vllm", "sglang") if entry.code else (entry.name,)),
    }, is_known


def describe_adapter(folder: Path) -> dict[str, Any]:
    """Describe an adapter by its weights and its config, wherever its base lies."""
    config = read_json(folder / "adapter_config.json")
    return {
        "weights": weights_hash(folder),
        "config": {key: value for key, value in config.items() if key not in _PLACES},
    }


def describe_verifier(
    task: Mapping[str, Any], plugins: Plugins, verifier: Verifier
) -> dict[str, Any]:
    """Describe what decides verdicts, which problems are solved, and what an episode is told.

    Args:
        task: its facts, as the manifest has them.
        plugins: has the verifier.
        verifier: says what the manifest's ``judged_by`` records of it.
    """
    digests = Digests()
    return {
        "name": task["verifier"],
        "parameters": describe_argument(task["verifier_params"], digests),
        "code": describe_code(plugins.get("verifier", task["verifier"]), digests),
        "describes": description_of(verifier),
        "libraries": describe_libraries(_JUDGING),
        "python": ".".join(platform.python_version_tuple()[:2]),
        "gapft-harness": __version__,  # what is bundled has no code of its own
    }


def describe_code(entry: Registered, digests: Digests) -> Any:
    """Describe a plugin's code: the hash of its file, and of a package all files."""
    home = Path(entry.home)
    if not entry.code or not home.is_dir():
        return entry.code
    return {"file": entry.code, "package": _describe_folder(home, digests)}


def _describe_folder(folder: Path, digests: Digests) -> dict[str, str]:
    """The hashes of a folder's files by relative name; what Python compiles is left out."""
    files = (file for file in folder.rglob("*") if file.is_file() and file.suffix != ".pyc")
    return {file.relative_to(folder).as_posix(): digests.of(file) for file in files}


def describe_libraries(names: tuple[str, ...]) -> dict[str, str]:
    """The minor versions of those libraries that are installed, with the build's label, by name."""
    found = {}
    for name in names:
        if version := installed(name):
            public, plus, build = version.partition("+")
            found[name] = ".".join(public.split(".")[:2]) + plus + build
    return found


def describe_accelerators() -> list[str]:
    """The models of this machine's NVIDIA GPUs, without importing torch; none if all are hidden.

    Where they differ, the last entry says which ones are shown.
    """
    shown, found = os.environ.get("CUDA_VISIBLE_DEVICES"), set()
    if shown is not None and shown.strip() in ("", "-1"):
        return []
    for file in Path("/proc/driver/nvidia/gpus").glob("*/information"):
        for line in file.read_text(encoding="utf-8", errors="replace").splitlines():
            if line.startswith("Model:"):
                found.add(line.removeprefix("Model:").strip())
    return [*sorted(found), *([f"shown: {shown}"] if shown and len(found) > 1 else [])]


def describe_model(arguments: Mapping[str, Any], digests: Digests) -> tuple[dict[str, Any], bool]:
    """Describe a model by the hashes of its files, else by its name.

    Args:
        arguments: as a sampler takes them.
        digests: remembers the hashes of large files.

    Returns:
        JSON values, and whether the files are known.
    """
    try:
        folder = weights_folder(arguments)
    except (OSError, ValueError):  # not in the hub's cache, or no name of the hub
        folder = None
    if folder is None or not folder.is_dir():
        name = [str(arguments.get(key)) for key in ("pretrained", "model", "revision")]
        return {"name": name}, False
    small, weights = model_files(folder)
    return {"files": {file.name: digests.of(file) for file in sorted(small | weights)}}, True


def describe_argument(value: Any, digests: Digests) -> Any:
    """Replace names of files and paths of folders in an argument by their contents' hashes.

    A number is written in one way: 2.0 as 2.
    """
    if isinstance(value, Mapping):
        return {key: describe_argument(item, digests) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [describe_argument(item, digests) for item in value]
    if isinstance(value, str):
        if os.path.isfile(value):
            return {"file": digests.of(Path(value))}
        if os.sep in value and os.path.isdir(value):
            return {"folder": _describe_folder(Path(value), digests)}
    return int(value) if isinstance(value, float) and value.is_integer() else value
