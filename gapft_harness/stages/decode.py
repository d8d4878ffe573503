"""The step that decodes problems with an arm's adapter, or with the source model, and verifies.

The audit is decoded with each arm's adapter, greedily or sampled once (``search.deployment``,
Section 3.4). Experiments decode other problems, draw samples, or scale the adapter's update.
"""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Final

from gapft_harness.core.records import Adapter, Arm, Decoding
from gapft_harness.core.streams import SampleStreams
from gapft_harness.engine.outputs import Output
from gapft_harness.engine.step import Input, Step
from gapft_harness.engine.store import Store, open_store
from gapft_harness.hooks.manager import Plugins, load_plugins
from gapft_harness.hooks.protocols import (
    Executor,
    Job,
    ReportProgress,
    SamplerSettings,
    report_nothing,
)
from gapft_harness.hooks.registration import ExecutorTraits, SamplerTraits
from gapft_harness.recipe.recipe import Recipe
from gapft_harness.run_directory.tables import read_problems
from gapft_harness.stages.descriptions import (
    describe_judging_machine,
    describe_sampler,
    describe_sampling_machine,
    describe_verifier,
    require_described,
    select_reported_model,
)
from gapft_harness.stages.generation.chunks import (
    build_sample_phases,
    build_single_phase,
)
from gapft_harness.stages.generation.generation import Decodes, generate_and_judge

#: What sampler and verifier depend on besides the recipe: parts of their descriptions, by kind.
Machine = Mapping[str, Mapping[str, Any]]

#: The key of the description of the machine in ``Context.cache``.
MACHINE: Final = "machine"


def describe_machine(
    backend: str,
    task: Mapping[str, Any],
    plugin_files: Sequence[str] = (),
    progress: ReportProgress = report_nothing,
) -> dict[str, dict[str, Any]]:
    """Describe what decodes depend on besides recipe, inputs and plugins; may run as a job.

    Args:
        backend: the sampler's name.
        task: the task's facts. Its verifier is created, with its sandbox if it has one.
        plugin_files: files given by ``--plugin``.
        progress: not called.

    Returns:
        The descriptions for the keys of ``sampler`` and ``verifier``.
    """
    plugins = load_plugins(plugin_files)
    with plugins.create_verifier(task["verifier"], task["verifier_params"]) as judge:
        judging = describe_judging_machine(judge)
    is_loaded = plugins.has("sampler", backend)  # a verification does without
    sampling = describe_sampling_machine(plugins.get("sampler", backend)) if is_loaded else {}
    return {"sampler": sampling, "verifier": judging}


def build_decoder(
    recipe: Recipe,
    task: Mapping[str, Any],
    source: Mapping[str, Any],
    run: Path,
    plugin_files: Sequence[str],
    executor: Executor | None = None,
    machine: Machine | None = None,
) -> DecodeBuilder:
    """Build the builder of a run's decodes.

    Args:
        recipe: the recipe.
        task: the task's facts.
        source: the description of the model that the search used; empty before it.
        run: the run directory.
        plugin_files: files given by ``--plugin``.
        executor: runs the decodes; one that chooses the machines describes them. None if the
            decodes are only planned or checked.
        machine: the description of the machine, if it is known.
    """
    if machine is None:
        machine = _ask_machine(recipe, task, plugin_files, executor)
    operational = {
        "plugin_files": list(plugin_files),
        "store": str(open_store(run).root),
        "run": str(run.resolve()),
    }
    return DecodeBuilder(recipe, task, source, load_plugins(plugin_files), machine, operational)


def _ask_machine(
    recipe: Recipe, task: Mapping[str, Any], plugin_files: Sequence[str], executor: Executor | None
) -> Machine:
    """Describe the machine of the jobs; an executor that chooses the machines asks one."""
    arguments: dict[str, Any] = {"backend": recipe.model.backend, "task": dict(task)}
    files = list(plugin_files)
    entry = load_plugins(files).get("executor", recipe.executor.name)
    if executor is None or entry.require_traits(ExecutorTraits).by_workers:
        return describe_machine(**arguments, plugin_files=files)
    job = Job.of("describe the machine", describe_machine, **arguments, plugin_files=files)
    (machine,) = executor.run([job], lambda *_, **__: None)
    return machine


@dataclass(frozen=True)
class DecodeBuilder:
    """Builds the steps that generate with a run's sampler and judge with its verifier.

    Attributes:
        recipe: the recipe.
        task: the task's facts.
        source: the description of the model that the search used.
        plugins: the loaded plugins.
        machine: what ``describe_machine`` returned, for the machine of the jobs.
        operational: ``plugin_files``, ``store`` and ``run``, arguments of the steps' functions.
    """

    recipe: Recipe
    task: Mapping[str, Any]
    source: Mapping[str, Any]
    plugins: Plugins
    machine: Machine
    operational: Mapping[str, Any]

    def build(
        self,
        name: str,
        function: Callable[..., object],
        settings: Mapping[str, Any],
        inputs: Mapping[str, Input],
        sampler_settings: SamplerSettings,
        operational: Mapping[str, Any],
        arm: Arm | None = None,
        verb: str = "decode",
    ) -> Step:
        """Build a step whose function generates with the sampler and judges with the verifier.

        The function also gets ``sampler`` and ``verifier``, their parts of the key; ``described``,
        all parts of their descriptions; ``sampler_settings``, the fields of the
        ``SamplerSettings``; and the builder's ``operational``.

        Args:
            name: the path of the output in the run.
            function: the step's function.
            settings: its further settings.
            inputs: its inputs; ``adapter`` is what the sampler loads besides the model.
            sampler_settings: the sampler's settings.
            operational: further arguments that are not in the key.
            arm: the arm of the adapter.
            verb: what it does, for progress.
        """
        adapter = inputs.get("adapter")
        loaded = None
        if arm is not None and isinstance(adapter, Output):
            loaded = Adapter(arm, str(adapter.path))
        sampler = self._describe_sampler(sampler_settings, loaded)
        verifier = self.verifier
        return Step(
            name,
            function,
            settings={
                **settings,
                "sampler": self._select_settings("sampler", sampler),
                "verifier": self._select_settings("verifier", verifier),
            },
            inputs=inputs,
            code={"sampler": sampler["code"], "verifier": verifier["code"]},
            machine=self.machine,
            operational={
                **self.operational,
                **operational,
                "described": {"sampler": sampler, "verifier": verifier},
                "sampler_settings": asdict(sampler_settings),
            },
            verb=verb,
            own_process=self._has_own_process,
        )

    @property
    def _has_own_process(self) -> bool:
        """Whether the sampler's process must end with the step."""
        backend = self.recipe.model.backend
        return self.plugins.has("sampler", backend) and (
            self.plugins.get("sampler", backend).require_traits(SamplerTraits).own_process
        )

    def _describe_sampler(
        self, settings: SamplerSettings, adapter: Adapter | None
    ) -> dict[str, Any]:
        """Describe the sampler, for keys; what is not known on this machine stays open."""
        sampler, is_known = describe_sampler(settings, self.plugins, adapter)
        if not is_known and self.source:
            sampler["model"]["reported"] = select_reported_model(self.source)
        return {**sampler, **self.machine["sampler"]}

    @cached_property
    def verifier(self) -> dict[str, Any]:
        """The description of the verifier, for keys: other rules make verdicts again."""
        machine = self.machine["verifier"]
        rules = {"rules": machine["describes"].get("rules")}
        return {**describe_verifier(self.task, self.plugins), **rules, **machine}

    def _select_settings(self, kind: str, described: Mapping[str, Any]) -> dict[str, Any]:
        """Select the parts of a description that are in the key under ``settings``."""
        apart = {"code", "adapter", *self.machine[kind]}
        selected = {key: value for key, value in described.items() if key not in apart}
        if isinstance(adapter := described.get("adapter"), Mapping) and "arm" in adapter:
            selected["arm"] = adapter["arm"]  # the sampler may depend on the arm's name
        return selected


def decode(
    output: Path,
    problems: Path,
    adapter: Path | None = None,
    *,
    split: str,
    ids: Collection[str] | None,
    samples: int,
    scale: float,
    decoding: Mapping[str, Any],
    streams: Mapping[str, Any] | None,
    chunk: int,
    episode: Mapping[str, Any],
    sampler: Mapping[str, Any],
    verifier: Mapping[str, Any],
    described: Mapping[str, Mapping[str, Any]],
    sampler_settings: Mapping[str, Any],
    verifier_params: Mapping[str, Any],
    arm: Sequence[Any],
    plugin_files: Sequence[str],
    store: str,
    run: str,
    progress: ReportProgress,
) -> dict[str, Any]:
    """Decode and verify problems: the function of a step; see ``View.decode``.

    Args:
        output: the table to write.
        problems: the split's table of problems.
        adapter: the adapter's folder; None for the source model.
        split: the split.
        ids: the problems to decode; None for all.
        samples: number of samples of each problem instead of its deployment decode.
        scale: factor of the adapter's update.
        decoding: the fields of a ``Decoding``.
        streams: the fields of the samples' ``SampleStreams``; None for greedy decodes.
        chunk: ``search.chunk``.
        episode: attempts and executions of an episode.
        sampler: the sampler's part of the key; ``described`` has all parts.
        verifier: the verifier's part of the key; ``described`` has all parts.
        described: the descriptions of sampler and verifier for the keys of stored parts.
        sampler_settings: the fields of the ``SamplerSettings``.
        verifier_params: the verifier's parameters.
        arm: condition and seed.
        plugin_files: files given by ``--plugin``.
        store: the folder of the store.
        run: the run directory that responses are generated for.
        progress: called with (0, 0) before the model is loaded, then with the numbers of finished
            and of all responses.

    Returns:
        The table's facts.

    Raises:
        UserError: the model is not the one of the search.
    """
    progress(0, 0)
    plugins = load_plugins(plugin_files)
    # Choose problems and phases
    members = [p for p, _ in read_problems(problems) if ids is None or p.id in ids]
    table_decoding = Decoding(**{**decoding, "until": tuple(decoding["until"])})
    phases = (
        build_sample_phases(table_decoding, samples)
        if samples
        else [build_single_phase(table_decoding)]
    )
    # Decode with the adapter
    with _open_adapter(adapter, Arm(*arm), scale, output) as loaded:
        sampler_parts = dict(described["sampler"])
        if scale != 1:
            sampler_parts["scale"] = scale
        facts, *_ = generate_and_judge(
            Decodes(
                sampler_parts,
                described["verifier"],
                chunk,
                SampleStreams(**streams) if streams else SampleStreams(0, "decode", split),
                episode["attempts"],
                episode["executions"],
            ),
            members,
            phases,
            output,
            store=Store(Path(store)),
            run=run,
            load_sampler=lambda: plugins.create_sampler(
                SamplerSettings(**sampler_settings), loaded
            ),
            require_same_model=partial(
                require_described, described=sampler_parts, name=Arm(*arm).name
            ),
            judge=plugins.create_verifier(verifier["name"], verifier_params),
            progress=progress,
        )
    return facts


@contextlib.contextmanager
def _open_adapter(
    folder: Path | None, arm: Arm, scale: float, output: Path
) -> Iterator[Adapter | None]:
    """Yield an adapter, scaled in a folder beside the output; None for the source model."""
    if folder is None:
        yield None
        return
    if scale == 1:
        yield Adapter(arm, str(folder))
        return
    from gapft_harness.training.adapter import scale_adapter

    copy = output.with_name(f"{arm.name}-{scale:g}")
    scale_adapter(folder, copy, scale, {"scale": scale})
    try:
        yield Adapter(arm, str(copy))
    finally:
        shutil.rmtree(copy)
