"""``gapft doctor``: report what this machine can run, and which data it has."""

from __future__ import annotations

import os
import platform
from collections.abc import Sequence

import typer

from gapft_harness.core.errors import GapftError
from gapft_harness.core.extras import find_version, install_command, is_installed
from gapft_harness.core.offline import force_offline
from gapft_harness.version import __version__

GROUP = "Look around"
EXAMPLE = "gapft doctor"

_CORE_PACKAGES = ("lm_eval", "datasets", "sympy")
_MODEL_PACKAGES = ("torch", "transformers", "peft", "accelerate")
_BACKENDS = {
    "hf": ("transformers", install_command("transformers")),
    "vllm": ("vllm", install_command("vllm")),
    "ray": ("ray", "pip install 'gapft-harness[ray]'"),
    "grpo": ("trl", install_command("trl")),
}
#: From the vLLM extra of TRL 1.16; a later TRL may differ.
_VLLM_CONFLICT = "TRL 1.16 needs vLLM 0.31 or earlier, gapft-harness[vllm] 0.32 or later"
_COUNTS_LABEL = "published counts"
# Tasks whose counts were published; without their data, only these names show it.
_WITH_PUBLISHED_COUNTS = ("gapft_logiqa", "gapft_reclor")


def command() -> None:
    """Report what this machine can run: backends, versions, GPU, sandbox, data."""
    typer.echo(examine_machine())


@force_offline()
def examine_machine() -> str:
    """Return the report, one line per finding. Nothing is downloaded."""
    return "\n".join(
        [
            *_build_section("machine", _describe_machine()),
            *_build_section(
                "packages",
                [_describe_package(name) for name in (*_CORE_PACKAGES, *_MODEL_PACKAGES)],
            ),
            *_build_section("backends", [*map(_describe_backend, _BACKENDS), *_list_conflicts()]),
            *_build_section("sandbox for generated programs", _describe_sandbox()),
            *_build_section("data", _describe_data()),
            *_build_section("plugins", _describe_plugins()),
        ]
    )


def _describe_plugins() -> list[str]:
    """Count registered components, and list broken plugins."""
    from gapft_harness.hooks.manager import examine_plugins

    plugins, faults = examine_plugins()
    count_text = f"{len(plugins.all())} registered components"
    if not faults:
        return [f"{count_text}, all loaded"]
    fault_lines = [f"BROKEN: {fault}" for fault in faults]
    return [
        count_text,
        *fault_lines,
        "no command can run with a broken plugin: repair or uninstall it",
    ]


def _describe_machine() -> list[str]:
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return [
        f"gapft-harness {__version__}, Python {platform.python_version()}, "
        f"{platform.system()} {platform.machine()}",
        f"{os.cpu_count()} CPUs, {memory:.0f} GiB memory",
        _describe_gpu(),
    ]


def _describe_gpu() -> str:
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


def _describe_package(name: str) -> str:
    if version := find_version(name):
        return f"{name} {version}"
    remedy = install_command(name) if name in _MODEL_PACKAGES else "reinstall gapft-harness"
    return f"{name}: NOT installed; {remedy}"


def _describe_backend(name: str) -> str:
    package, remedy = _BACKENDS[name]
    version = find_version(package)
    return f"{name}: yes ({package} {version})" if version else f"{name}: not installed ({remedy})"


def _list_conflicts() -> list[str]:
    """List installed packages that conflict."""
    if not (is_installed("trl") and is_installed("vllm")):
        return []
    return [f"grpo and vllm: {_VLLM_CONFLICT}; the trainer grpo generates with transformers"]


def _describe_sandbox() -> list[str]:
    """Describe the sandbox tier that programs would use, and the result of each canary."""
    from gapft_harness.sandbox import probe_tiers

    outcomes = probe_tiers()
    tiers = list(dict.fromkeys(outcome.tier for outcome in outcomes))
    holding_tiers = [t for t in tiers if all(o.holds for o in outcomes if o.tier == t)]
    tier = holding_tiers[0] if holding_tiers else "NONE: programs cannot be judged on this machine"
    return [f"tier: {tier}", *(str(outcome) for outcome in outcomes)]


def _describe_data() -> list[str]:
    """Describe the data of each task, and whether its counts match the published ones."""
    from gapft_harness.lm_eval_bridge.discovery import list_tasks

    lines = []
    for task in list_tasks():
        if task.split == "audit" and not task.name.endswith("_passk"):
            lines += _describe_task_data(task.name)
    return lines


def _describe_task_data(name: str) -> list[str]:
    from gapft_harness.lm_eval_bridge.benchmarks.splits import DataNotFound
    from gapft_harness.lm_eval_bridge.discovery import load_task

    unverified_lines = (
        [f"  {_COUNTS_LABEL}: not verified"] if name in _WITH_PUBLISHED_COUNTS else []
    )
    try:
        task = load_task(name)
        pool, audit, published = task.read_pool(), task.read_audit(), task.read_published()
    except DataNotFound:
        where = "put the files under $GAPFT_DATA_DIR, or download them once (docs/tasks.md)"
        return [f"{name}: no data on this machine; {where}", *unverified_lines]
    except GapftError as error:
        return [f"{name}: {error}", *unverified_lines]
    lines = [f"{name}: {len(pool)} pool problems, {len(audit)} audit problems"]
    lines += [f"  {line}" for line in task.dropped]
    if published is not None:
        lines.append(f"  {_COUNTS_LABEL}: {published}")
    return lines


def _build_section(title: str, lines: Sequence[str]) -> list[str]:
    return [title, *(f"  {line}" for line in lines)]
