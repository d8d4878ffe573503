"""``gapft doctor``: report what this machine can run, and which data it has."""

from __future__ import annotations

import platform
from collections.abc import Iterator

import typer

from gapft_harness.core.cgroups import count_usable_cores, read_usable_memory
from gapft_harness.core.errors import GapftError
from gapft_harness.core.extras import find_version, install_command
from gapft_harness.core.offline import force_offline
from gapft_harness.version import __version__

EXAMPLE = "gapft doctor"

_CORE_PACKAGES = ("lm_eval", "datasets", "sympy")
_MODEL_PACKAGES = ("torch", "transformers", "peft", "accelerate")
_BACKENDS = {
    "hf": ("transformers", install_command("transformers")),
    "vllm": ("vllm", install_command("vllm")),
    "ray": ("ray", install_command("ray")),
    "grpo": ("trl", install_command("trl")),
}
#: From the vLLM extra of TRL 1.16; a later TRL may differ.
_VLLM_CONFLICT = (
    "grpo and vllm: TRL 1.16 needs vLLM 0.31 or earlier, gapft-harness[vllm] 0.32 or later; the "
    "trainer grpo generates with transformers"
)


def command() -> None:
    """Report what this machine can run: backends, versions, GPU, sandbox, data."""
    sections = {
        "machine": _describe_machine,
        "packages": _describe_packages,
        "backends": _describe_backends,
        "sandbox for generated programs": _describe_sandbox,
        "data": _describe_data,
        "plugins": _describe_plugins,
    }
    with force_offline():  # nothing is downloaded
        for title, describe in sections.items():
            typer.echo(title)
            for line in describe():
                typer.echo(f"  {line}")


def _describe_machine() -> Iterator[str]:
    memory = read_usable_memory() / 2**30
    system = f"{platform.system()} {platform.machine()}"
    yield f"gapft-harness {__version__}, Python {platform.python_version()}, {system}"
    yield f"{count_usable_cores():g} CPUs, {memory:.0f} GiB memory"
    try:
        import torch
    except ModuleNotFoundError:
        yield "torch is not installed: logs can be compared, but no model can run or train"
        return
    names = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
    yield f"{len(names)} GPU: {', '.join(names) or 'none; models run on the CPU'}"


def _describe_packages() -> Iterator[str]:
    for name in (*_CORE_PACKAGES, *_MODEL_PACKAGES):
        if version := find_version(name):
            yield f"{name} {version}"
        else:
            remedy = install_command(name) if name in _MODEL_PACKAGES else "reinstall gapft-harness"
            yield f"{name}: NOT installed; {remedy}"


def _describe_backends() -> Iterator[str]:
    for name, (package, remedy) in _BACKENDS.items():
        version = find_version(package)
        yield f"{name}: yes ({package} {version})" if version else f"{name}: no; {remedy}"
    if find_version("trl") and find_version("vllm"):
        yield _VLLM_CONFLICT


def _describe_sandbox() -> Iterator[str]:
    """Describe the sandbox tier that programs would use, and the result of each canary."""
    from gapft_harness.sandbox import probe_tiers

    outcomes = probe_tiers()
    broken = {outcome.tier for outcome in outcomes if not outcome.holds}
    tiers = [outcome.tier for outcome in outcomes if outcome.tier not in broken]
    yield f"tier: {tiers[0] if tiers else 'NONE: programs cannot be judged on this machine'}"
    yield from map(str, outcomes)


def _describe_data() -> Iterator[str]:
    """Describe the data of each task, and counts that differ from the paper's."""
    from gapft_harness.lm_eval_bridge.benchmarks.splits import DataNotFound
    from gapft_harness.lm_eval_bridge.discovery import list_tasks, load_task

    for entry in list_tasks():
        if entry.split != "audit" or entry.name.endswith("_passk"):
            continue
        try:
            task = load_task(entry.name)
            pool = task.read("pool")
            audit = task.read("audit")
        except DataNotFound:
            yield (
                f"{entry.name}: no data on this machine; put the files under $GAPFT_DATA_DIR, or "
                "download them once (docs/tasks.md)"
            )
            continue
        except GapftError as error:
            yield f"{entry.name}: {error}"
            continue
        yield f"{entry.name}: {len(pool)} pool problems, {len(audit)} audit problems"
        yield from (f"  {line}" for line in (*task.dropped, *task.warnings))


def _describe_plugins() -> Iterator[str]:
    """Count registered components, and list broken plugins."""
    from gapft_harness.hooks.manager import examine_plugins

    plugins, faults = examine_plugins()
    yield f"{len(plugins.all())} registered components"
    for fault in faults:
        yield f"BROKEN: {fault}"
    if faults:
        yield "no command can run with a broken plugin: repair or uninstall it"
