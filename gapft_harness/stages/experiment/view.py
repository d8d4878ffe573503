"""A run as an experiment sees it, and the steps that experiments request."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict
from functools import cached_property
from pathlib import Path
from typing import Any

from gapft_harness.core.identities import content_hash
from gapft_harness.core.records import SOURCE, Arm
from gapft_harness.core.streams import SampleStreams
from gapft_harness.engine.outputs import NOT_HERE, Output, Unknown
from gapft_harness.engine.run import describe_missing
from gapft_harness.engine.step import Input, Step
from gapft_harness.hooks.manager import Plugins
from gapft_harness.hooks.protocols import Executor
from gapft_harness.hooks.registration import SamplerTraits
from gapft_harness.recipe.recipe import Recipe, build_sampler_settings
from gapft_harness.run_directory import layout
from gapft_harness.run_directory.directory import RunDirectory
from gapft_harness.run_directory.recorded import read_source
from gapft_harness.stages.decode import MACHINE, DecodeBuilder, build_decoder, decode
from gapft_harness.stages.descriptions import describe_adapter
from gapft_harness.stages.generation.chunks import (
    build_deployment_decoding,
    build_sampled_decoding,
    read_decoding,
)
from gapft_harness.stages.search.states import Window, compute_states

#: Folders of a run that experiments must not write to.
RUN_FOLDERS = (
    "pool", "audit", "calibration", "states", "selections", "budgets", "adapters", "decisions",
    "tracking", "report",
)  # fmt: skip


class View:
    """An experiment's view of a run: its recipe, arms, files and steps.

    Args:
        run: the run directory.
        plugins: the loaded plugins.
        arms: the arms to consider: those with a training set, or the trained ones.
        plugin_files: files given by ``--plugin``.
        executor: runs the steps; None if they are only planned or checked.
        cache: what is found once for a command (``Context.cache``).
    """

    def __init__(
        self,
        run: RunDirectory,
        plugins: Plugins,
        arms: Iterable[Arm],
        plugin_files: Sequence[str] = (),
        executor: Executor | None = None,
        cache: dict[str, Any] | None = None,
    ) -> None:
        self.run = run
        self.plugins = plugins
        self._arms = tuple(arms)
        self.plugin_files, self._executor = list(plugin_files), executor
        self._outputs: dict[str, Output | Unknown] = {}
        self._cache: dict[str, Any] = {} if cache is None else cache

    def with_arms(self, arms: Iterable[Arm]) -> View:
        """Return this view of the run with other arms."""
        view = copy.copy(self)
        view._arms, view._outputs = tuple(arms), {**self._outputs}
        return view

    @property
    def recipe(self) -> Recipe:
        """The run's recipe."""
        return self.run.recipe

    def arms(self) -> Sequence[Arm]:
        """Return the run's arms; empty before the selection."""
        return self._arms

    def has(self, file: str) -> bool:
        """Return whether the run has a finished file or folder of this name."""
        return self.run.has(file)

    def file(self, file: str) -> Path:
        """Return the path of a finished file or folder, after checking its content.

        Raises:
            NotKnownYet: it does not exist yet.
            UserError: it was changed.
        """
        return self.output(file).path

    def output(self, file: str) -> Output | Unknown:
        """Return a file or folder of the run as the input of a step.

        Raises:
            UserError: it was changed.
        """
        if file in self._outputs:
            return self._outputs[file]
        folder, _, inner = file.partition("/")
        if folder in self._outputs:  # a table of a search
            whole = self._outputs[folder]
            return whole if isinstance(whole, Unknown) else Output(whole.path / inner, whole.facts)
        if not self.has(file):
            return Unknown(describe_missing(self.run.path / file))
        record = self.run.read_records().get(file)
        return Output(self.run.file(file), record.facts if record else {})

    def add(self, outputs: Mapping[str, Output | Unknown]) -> None:
        """Add the outputs of steps, for the steps that follow."""
        self._outputs |= outputs

    def generates(self) -> bool:
        """Return whether the recipe's backend generates; True if its plugin is not loaded.

        A backend that replays has only the responses of each arm's own adapter.
        """
        backend = self.recipe.model.backend
        if not self.plugins.has("sampler", backend):
            return True
        return self.plugins.get("sampler", backend).require_traits(SamplerTraits).generates

    def step(
        self,
        file: str,
        function: Callable[..., object],
        inputs: Mapping[str, str | Sequence[str]] | None = None,
        settings: Mapping[str, Any] | None = None,
        operational: Mapping[str, Any] | None = None,
        *,
        version: int = 1,
        cheap: bool = True,
    ) -> Step:
        """Build the step that makes a file or folder of the run with a pure function.

        Args:
            file: ``FOLDER/NAME``, the path in the run.
            function: a function at the top of a module. It is called in another process as
                ``function(output, **inputs, **settings, **operational)``, with paths for ``output``
                and ``inputs``, and writes ``output``. It may return facts: JSON values by name.
            inputs: the finished file or files of the run that it reads, by argument.
            settings: JSON values that its output depends on.
            operational: JSON values that its output does not depend on, such as threads.
            version: increase it when the output changes meaning.
            cheap: whether it is exact and quick: ``gapft verify`` makes it again and compares.
        """
        given: dict[str, Input] = {
            argument: self.output(names)
            if isinstance(names, str)
            else [self.output(name) for name in names]
            for argument, names in (inputs or {}).items()
        }
        return Step(
            file,
            function,
            settings or {},
            given,
            operational=operational or {},
            version=version,
            cheap=cheap,
        )

    def decode(
        self,
        file: str,
        arm: Arm,
        split: str = "audit",
        *,
        ids: Iterable[str] | None = None,
        samples: int = 0,
        scale: float = 1.0,
        verb: str = "decode",
    ) -> Step:
        """Build the step that decodes problems with an arm's adapter and verifies the answers.

        Args:
            file: ``layout.decisions_path(arm, NAME)``.
            arm: the arm; ``SOURCE`` for no adapter.
            split: the split of the problems.
            ids: the problems to decode; None for all problems of the split.
            samples: number of samples of each problem instead of its deployment decode, drawn as in
                the search. Arms of the same training seed use the same random streams.
            scale: factor of the adapter's update; 1 for the adapter as trained.
            verb: the verb in progress messages.
        """
        # The adapter
        adapter: dict[str, Input] = {}
        if arm.condition != SOURCE:
            folder = self.file(layout.adapter_path(arm))
            # what a sampler sees of it; the folder may also name the arm
            adapter["adapter"] = Output(folder, seen=content_hash(describe_adapter(folder)))
        # How responses are decoded, and their random streams
        task = self.run.task
        search = self.recipe.search
        greedy = read_decoding(task["decoding"])
        decoding = (
            build_sampled_decoding(greedy, search)
            if samples
            else build_deployment_decoding(greedy, search)
        )
        seed = None if arm.condition == SOURCE else arm.seed
        streams = SampleStreams(search.seed, "decode", split, seed)
        return self.decoder.build(
            file,
            decode,
            {
                "split": split,
                "ids": None if ids is None else sorted(ids),
                "samples": samples,
                "scale": scale,
                "decoding": {**asdict(decoding), "until": list(decoding.until)},
                "streams": asdict(streams) if decoding.do_sample else None,
                "chunk": search.chunk,
                "episode": dict(task["episode"]),
            },
            {"problems": self.output(layout.problems_path(split)), **adapter},
            build_sampler_settings(self.recipe),
            {"verifier_params": task["verifier_params"], "arm": [arm.condition, arm.seed]},
            arm,
            verb,
        )

    def states(self, window: Window | None = None, split: str = "audit") -> Step:
        """Build the step that computes a split's states from some samples of its search.

        It makes ``layout.states_path(split, (window.offset, window.k))``.

        Args:
            window: the samples; None for all.
            split: the split.
        """
        recipe = self.recipe
        keep = recipe.evidence.keep or self.run.task["keep"]
        code: Any = self.plugins.find_code_hash("response rule", keep)
        if code is None:
            code = NOT_HERE
        samples = window or Window(0, recipe.search.k)
        return Step(
            layout.states_path(split, (window.offset, window.k) if window else None),
            compute_states,
            {"offset": samples.offset, "k": samples.k, "keep": keep, "drawn": recipe.search.k},
            {"responses": self.output(layout.responses_path(split))},
            {"rule": code} if code else {},
            operational={"plugin_files": self.plugin_files},
            cheap=True,
            verb="states",
        )

    @cached_property
    def decoder(self) -> DecodeBuilder:
        """Builds the steps that generate and judge."""
        decoder = build_decoder(
            self.recipe,
            self.run.task,
            read_source(self.run),
            self.run.path,
            self.plugin_files,
            self._executor,
            self._cache.get(MACHINE),
        )
        self._cache[MACHINE] = decoder.machine
        return decoder


def find_name_fault(step: Step) -> str:
    """Describe why an experiment's step cannot make the file of its name; empty if it can."""
    file = step.name
    if step.function is decode:
        place = layout.parse_path(file)
        arm = Arm(*step.operational["arm"])
        if place and place.kind == layout.DECISIONS and place.experiment and place.arm == arm:
            return ""
        return f"{file!r}: expected layout.decisions_path({arm}, NAME)"
    folder, _, name = file.partition("/")
    if step.function is compute_states:
        return ""  # ``View.states`` names it
    if folder in RUN_FOLDERS or not folder.isidentifier():
        return f"{file!r}: expected a folder of the experiment, such as NAME/ARM.json"
    if not name or "/" in name or name.startswith("."):
        return f"{file!r}: expected FOLDER/NAME"
    return ""
