"""``gapft doctor``: report what this machine can run, and which data it has."""

from __future__ import annotations

import os
import platform
from collections.abc import Sequence

import typer

from gapft_harness.core.errors import GapftError
from gapft_harness.core.extras import has, install, installed
from gapft_harness.core.offline import offline
from gapft_harness.version import __version__

GROUP = "Look around"
EXAMPLE = "gapft doctor"

_CORE = ("lm_eval", "datasets", "math-verify")
_MODELS = ("torch", "transformers", "peft", "accelerate")
_BACKENDS = {
    "hf": ("transformers", install("transformers")),
    "vllm": ("vllm", install("vllm")),
    "ray": ("ray", "pip install 'gapft-harness[ray]'"),
    "grpo": ("trl", install("trl")),
}
#: From the vLLM extra of TRL 1.16; a later TRL may differ.
_VLLM_OF_TRL = "TRL 1.16 needs vLLM 0.31 or earlier, gapft-harness[vllm] 0.32 or later"
_COUNTS = "published counts"
# Tasks whose counts were published; without their data, only these names show it.
_WITH_PUBLISHED_COUNTS = ("gapft_logiqa", "gapft_reclor")


def command() -> None:
    """Report what this machine can run: backends, versions, GPU, sandbox, data."""
    typer.echo(examine())


@offline()
def examine() -> str:
    """Return the report, one line per finding. Nothing is downloaded."""
    return "\n".join(
        [
            *_section("machine", _machine()),
            *_section("packages", [_package(name) for name in (*_CORE, *_MODELS)]),
            *_section("backends", [*map(_backend, _BACKENDS), *_conflict()]),
            *_section("sandbox for generated programs", _sandbox()),
            *_section("data", _data()),
            *_section("plugins", _plugins()),
        ]
    )


def _plugins() -> list[str]:
    """Count registered components, and list broken plugins."""
    from gapft_harness.hooks.manager import examine_plugins

    plugins, faults = examine_plugins()
    loaded = f"{len(plugins.all())} registered components"
    if not faults:
        return [f"{loaded}, all loaded"]
    broken = [f"BROKEN: {fault}" for fault in faults]
    return [loaded, *broken, "no command can run with a broken plugin: repair or uninstall it"]


def _machine() -> list[str]:
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return [
        f"gapft-harness {__version__}, Python {platform.python_version()}, "
        f"{platform.system()} {platform.machine()}",
        f"{os.cpu_count()} CPUs, {memory:.0f} GiB memory",
        _gpu(),
    ]


def _gpu() -> str:
    try:
        import torch
    except ModuleNotFoundError:
        return (
            "torch is not installed: logs can be compared and judged, but no model can run or train"
        )
    if not torch.cuda.is_available():
        return "no GPU that torch can use; models run on the CPU"
    names = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
    return f"{len(names)} GPU: {', '.join(names)}"


def _package(name: str) -> str:
    if found := installed(name):
        return f"{name} {found}"
    remedy = install(name) if name in _MODELS else "reinstall gapft-harness"
    return f"{name}: NOT installed; {remedy}"


def _backend(name: str) -> str:
    package, remedy = _BACKENDS[name]
    found = installed(package)
    return f"{name}: yes ({package} {found})" if found else f"{name}: not installed ({remedy})"


def _conflict() -> list[str]:
    """List installed packages that conflict."""
    if not (has("trl") and has("vllm")):
        return []
    return [f"grpo and vllm: {_VLLM_OF_TRL}; the trainer grpo generates with transformers"]


def _sandbox() -> list[str]:
    """Describe the sandbox tier that programs would use, and the result of each canary."""
    from gapft_harness.sandbox import probe

    found = probe()
    tiers = list(dict.fromkeys(outcome.tier for outcome in found))
    holding = [t for t in tiers if all(o.holds for o in found if o.tier == t)]
    tier = holding[0] if holding else "NONE: programs cannot be judged on this machine"
    return [f"tier: {tier}", *(str(outcome) for outcome in found)]


def _data() -> list[str]:
    """Describe the data of each task, and whether its counts match the published ones."""
    from gapft_harness.lm_eval_bridge.discovery import list_tasks

    lines = []
    for task in list_tasks():
        if task.split == "audit" and not task.name.endswith("_passk"):
            lines += _task_data(task.name)
    return lines


def _task_data(name: str) -> list[str]:
    from gapft_harness.lm_eval_bridge.benchmarks.splits import DataNotFound
    from gapft_harness.lm_eval_bridge.discovery import load_task

    unverified = [f"  {_COUNTS}: not verified"] if name in _WITH_PUBLISHED_COUNTS else []
    try:
        task = load_task(name)
        pool, audit, published = task.pool(), task.audit(), task.published()
    except DataNotFound:
        where = "put the files under $GAPFT_DATA_DIR, or download them once (docs/tasks.md)"
        return [f"{name}: no data on this machine; {where}", *unverified]
    except GapftError as error:
        return [f"{name}: {error}", *unverified]
    lines = [f"{name}: {len(pool)} pool problems, {len(audit)} audit problems"]
    lines += [f"  {line}" for line in task.dropped]
    if published is not None:
        lines.append(f"  {_COUNTS}: {published}")
    return lines


def _section(title: str, lines: Sequence[str]) -> list[str]:
    return [title, *(f"  {line}" for line in lines)]
