"""Describe models, adapters, plugins, arguments and machines as JSON values, for keys."""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gapft_harness.core.digests import hash_file
from gapft_harness.core.errors import UserError
from gapft_harness.core.extras import find_version
from gapft_harness.core.json_values import describe_change
from gapft_harness.core.numerics import ALL_GPUS, VISIBLE_GPUS, describe_environment
from gapft_harness.core.records import Adapter
from gapft_harness.core.weights import find_model_files, find_weights_folder, weights_hash
from gapft_harness.engine.outputs import NOT_HERE
from gapft_harness.engine.store import read_json
from gapft_harness.hooks.judge import Judge
from gapft_harness.hooks.manager import Plugins
from gapft_harness.hooks.protocols import SamplerSettings
from gapft_harness.hooks.registration import Registration, SamplerTraits
from gapft_harness.recipe.recipe import select_fixed_args
from gapft_harness.version import __version__

#: Libraries whose minor versions may change what a model generates.
_LIBRARIES = ("torch", "transformers", "tokenizers", "peft", "lm_eval")

#: Libraries whose versions may change a verdict, or the behavior of a judged program.
_JUDGING_LIBRARIES = (
    "math-verify",
    "latex2sympy2_extended",
    "sympy",
    "reasoning-gym",
    "lm_eval",
    "numpy",
)

#: Keys of a sampler's description that identify a model whose files are not available.
REPORTED_MODEL_KEYS = ("weights_sha256", "model", "revision", "responses_sha256", "start_ids")

#: Keys of an adapter's config that locate its base without changing its output.
_BASE_LOCATION_KEYS = ("base_model_name_or_path", "revision")


def describe_sampler(
    settings: SamplerSettings, plugins: Plugins, adapter: Adapter | None
) -> tuple[dict[str, Any], bool]:
    """Describe a sampler and its model without loading it.

    Args:
        settings: the sampler's settings.
        plugins: the plugins; without the sampler's its code and arguments are not known.
        adapter: the adapter on the model; None for the source model.

    Returns:
        JSON values, equal on every machine with the same model; and whether its files are
        available. They are not before a download, and never on a server. What depends on the
        machine is described by ``describe_sampling_machine``.
    """
    model, is_known = describe_model(settings.model_args)
    described = {
        "backend": settings.backend,
        "model": model,
        "chat_template": settings.chat_template,
        "system_instruction": settings.system_instruction,
        "start_tokens": settings.start_tokens,
    }
    if not plugins.has("sampler", settings.backend):
        unknown: dict[str, Any] = {"code": NOT_HERE, "arguments": NOT_HERE, "adapter": None}
        if adapter is not None:
            unknown["adapter"] = {"arm": NOT_HERE}
        return {**described, **unknown}, is_known
    entry = plugins.get("sampler", settings.backend)
    arguments = {
        key: value
        for key, value in select_fixed_args(settings.backend, settings.model_args, plugins).items()
        if key != "pretrained" and value is not None
    }
    adapter_parts = None
    if adapter is not None:
        adapter_parts = describe_adapter(Path(adapter.path))
        if entry.code_hash or not entry.require_traits(SamplerTraits).generates:
            adapter_parts["arm"] = adapter.arm.name  # may depend on the arm's name
    return {
        **described,
        "code": entry.code_hash,
        "arguments": {key: describe_argument(value) for key, value in arguments.items()},
        "adapter": adapter_parts,
    }, is_known


def describe_sampling_machine(entry: Registration) -> dict[str, Any]:
    """Describe what a sampler's responses depend on besides its model and settings."""
    return {
        "libraries": describe_libraries((*_LIBRARIES, entry.name)),
        "accelerators": describe_accelerators(),
        "environment": describe_environment(bool(entry.code_hash) or entry.name == "vllm"),
    }


def describe_adapter(folder: Path) -> dict[str, Any]:
    """Describe an adapter by its weights and its config, without the location of its base."""
    config = read_json(folder / "adapter_config.json")
    return {
        "weights": weights_hash(folder),
        "config": {key: value for key, value in config.items() if key not in _BASE_LOCATION_KEYS},
    }


def describe_verifier(task: Mapping[str, Any], plugins: Plugins) -> dict[str, Any]:
    """Describe a task's verifier, which gives verdicts and feedback.

    Args:
        task: the task's facts.
        plugins: the plugins with the verifier.
    """
    return {
        "name": task["verifier"],
        "parameters": describe_argument(task["verifier_params"]),
        "code": plugins.get("verifier", task["verifier"]).code_hash,
    }


def describe_judging_machine(judge: Judge) -> dict[str, Any]:
    """Describe what verdicts depend on besides the verifier, its parameters and its code."""
    return {
        "describes": judge.describe(),
        "libraries": {name: find_version(name) for name in _JUDGING_LIBRARIES},
        "python": ".".join(platform.python_version_tuple()[:2]),
        "gapft-harness": __version__,  # bundled verifiers have no code hash
    }


def _describe_folder(folder: Path) -> dict[str, str]:
    """Hash a folder's files by relative name, without compiled Python files."""
    files = (file for file in folder.rglob("*") if file.is_file() and file.suffix != ".pyc")
    return {file.relative_to(folder).as_posix(): hash_file(file) for file in files}


def describe_libraries(names: tuple[str, ...]) -> dict[str, str]:
    """Return the minor versions of the installed libraries, with the build's label, by name."""
    versions = {}
    for name in names:
        if version := find_version(name):
            public, plus, build = version.partition("+")
            versions[name] = ".".join(public.split(".")[:2]) + plus + build
    return versions


def describe_accelerators() -> list[str]:
    """List the models of this machine's NVIDIA GPUs without importing torch; empty if hidden.

    If the models differ, the last entry names the devices that are visible to the command.
    """
    visible_devices = os.environ.get(ALL_GPUS) or os.environ.get(VISIBLE_GPUS, "all")
    if visible_devices.strip() in ("", "-1"):
        return []
    models = set()
    for file in Path("/proc/driver/nvidia/gpus").glob("*/information"):
        for line in file.read_text(encoding="utf-8", errors="replace").splitlines():
            if line.startswith("Model:"):
                models.add(line.removeprefix("Model:").strip())
    return [*sorted(models), *([f"shown: {visible_devices}"] if len(models) > 1 else [])]


def describe_model(arguments: Mapping[str, Any]) -> tuple[dict[str, Any], bool]:
    """Describe a model by the hashes of its files, or by its name if they are not available.

    Args:
        arguments: the sampler's arguments.

    Returns:
        JSON values, and whether the files are available.
    """
    try:
        folder = find_weights_folder(arguments)
    except (OSError, ValueError):  # not in the hub's cache, or not a name on the hub
        folder = None
    if folder is None or not folder.is_dir():
        name = [str(arguments.get(key)) for key in ("pretrained", "model", "revision")]
        return {"name": name, "reported": NOT_HERE}, False
    small, weights = find_model_files(folder)
    return {"files": {file.name: hash_file(file) for file in sorted(small | weights)}}, True


def select_reported_model(description: Mapping[str, Any]) -> dict[str, Any]:
    """Select what identifies a model whose files are not available from a sampler's description."""
    return {key: description[key] for key in REPORTED_MODEL_KEYS if key in description}


def require_described(reported: Mapping[str, Any], described: Mapping[str, Any], name: str) -> None:
    """Require that a loaded model reports what the description of its sampler for keys has.

    A model whose files are on this machine is known by their hashes.

    Args:
        reported: the loaded sampler's description of its model.
        described: the description of the sampler for keys (``describe_sampler``).
        name: the split or arm, for the message.

    Raises:
        UserError: the model differs; the message has both descriptions.
    """
    expected = described["model"].get("reported")
    found = select_reported_model(reported)
    if not isinstance(expected, Mapping) or expected == NOT_HERE:
        return
    # a server gives each adapter a model name of its own
    free = {"model"} if reported.get("adapter") else set[str]()
    keys = sorted(expected.keys() & found.keys() - free)
    if lines := [
        describe_change(k, expected[k], found[k]) for k in keys if expected[k] != found[k]
    ]:
        raise UserError(
            f"{name}: the model is not the one that was searched before: {'; '.join(lines)}; "
            "restore it, or use another --run-dir"
        )


def describe_argument(value: Any) -> Any:
    """Replace the paths of files and folders in an argument by the hashes of their contents.

    Whole floats are written as integers: 2.0 as 2.
    """
    if isinstance(value, Mapping):
        return {key: describe_argument(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [describe_argument(item) for item in value]
    if isinstance(value, str):
        if os.path.isfile(value):
            return {"file": hash_file(Path(value))}
        # A text such as "." or "/" may be no folder: one that contains the working folder is left.
        if os.path.isdir(value) and not Path.cwd().is_relative_to(Path(value).resolve()):
            return {"folder": _describe_folder(Path(value))}
    return int(value) if isinstance(value, float) and value.is_integer() else value
