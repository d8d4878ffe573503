"""Steps of experiments: their output, inputs and keys.

A step makes one file or folder of the run. Its record in the manifest (section ``steps``) describes
its inputs; its key is the hash of that record with the digests of the inputs. Output with the same
key is kept; any other output is made again.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from gapft_harness.core.errors import GapftError, UserError
from gapft_harness.core.files import PARTIAL, not_writable_error, sync_folder
from gapft_harness.core.identities import content_hash
from gapft_harness.core.processes import import_function
from gapft_harness.core.records import SOURCE, Arm
from gapft_harness.hooks.manager import Plugins
from gapft_harness.hooks.protocols import Job, ReportProgress, report_nothing
from gapft_harness.hooks.registration import SamplerTraits
from gapft_harness.recipe.recipe import Recipe
from gapft_harness.run_directory import layout
from gapft_harness.run_directory.directory import RunDirectory
from gapft_harness.run_directory.manifest import Manifest, StepFacts
from gapft_harness.stages.audit import audit_arm
from gapft_harness.stages.context import Context
from gapft_harness.stages.search.states import Window, partition_window

#: A sealed file or folder of the run, or several.
Input = str | Sequence[str]


@dataclass(frozen=True)
class Step:
    """A pure function from sealed files and settings to one file or folder of the run.

    It is called as ``function(output, **inputs, **settings, **operational)``, in another process,
    with paths for ``output`` and ``inputs``. It writes ``output``, a file or a folder, which the
    harness then moves into place.

    Attributes:
        function: a function at the top of a module; its name is the step's name.
        inputs: the sealed file or files of the run that it reads, by argument.
        settings: JSON values that its output depends on.
        operational: JSON values that do not affect its results, such as paths to mention; they
            are not in its key.
        version: increase it when the output changes meaning.
        repeats: whether the same inputs and settings give the same bytes.
        cheap: whether ``gapft verify`` runs it again and compares, if it repeats.
    """

    function: Callable[..., object]
    inputs: Mapping[str, Input] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)
    operational: Mapping[str, Any] = field(default_factory=dict)
    version: int = 1
    repeats: bool = True
    cheap: bool = True

    def job(self, context: Context, file: str) -> Job:
        """Build the job for an executor."""
        name = file.rpartition("/")[2].removesuffix(".json")
        function: Any = self.function
        return Job.of(
            f"{function.__name__} {name}",
            make_file,
            function=f"{function.__module__}:{function.__qualname__}",
            output=str(context.run.path / file),
            inputs=self.paths(context.run.path),
            values={**self.settings, **self.operational},
            plugin_files=list(context.plugin_files),
        )

    def paths(self, run_path: Path) -> dict[str, Any]:
        """Return the inputs as paths on this machine, by argument."""
        return {
            name: str(run_path / files)
            if isinstance(files, str)
            else [str(run_path / file) for file in files]
            for name, files in self.inputs.items()
        }

    def fault(self, file: str) -> str:
        """Describe why the step cannot make this file of a run; empty if it can."""
        folder, _, name = file.partition("/")
        if folder in RUN_FOLDERS or not folder.isidentifier():
            return f"{file!r}: expected a folder of the experiment, such as NAME/ARM.json"
        if not name or "/" in name or name.startswith("."):
            return f"{file!r}: expected FOLDER/NAME"
        return ""


#: Folders of a run that experiments must not write to.
RUN_FOLDERS = (
    "pool", "audit", "calibration", "selections", "adapters", "decisions", "tracking", "report",
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Decode(Step):
    """Verified decodes of a split's problems with an arm's adapter; see ``View.decode``.

    Attributes:
        arm: the arm; ``SOURCE`` for no adapter.
        ids: the problems in ascending order; None for all problems of the split.
        verb: the verb in progress messages.
    """

    arm: Arm
    ids: Sequence[str] | None = None
    verb: str = "decode"

    @property
    def split(self) -> str:
        """The split of the problems."""
        return str(self.settings["split"])

    @property
    def scale(self) -> float:
        """The factor of the adapter's update."""
        return float(self.settings["scale"])

    @property
    def sampled(self) -> bool:
        """Whether it draws samples instead of the deployment decode of each problem."""
        return bool(self.settings["samples"])

    def job(self, context: Context, file: str) -> Job:
        """See ``Step.job``."""
        settings = {key: self.settings[key] for key in ("split", "samples", "scale")}
        ids = None if self.ids is None else list(self.ids)
        return context.build_arm_job(
            self.verb, partial(audit_arm, file=file, ids=ids, **settings), self.arm
        )

    def fault(self, file: str) -> str:
        """See ``Step.fault``."""
        place = layout.parse_path(file)
        if place and place.kind == layout.DECISIONS and place.experiment and place.arm == self.arm:
            return ""
        return f"{file!r}: expected layout.decisions_path({self.arm}, NAME)"


@dataclass(frozen=True, kw_only=True)
class States(Step):
    """The audit's states from some of its samples; see ``View.states``.

    Attributes:
        window: the samples.
    """

    window: Window

    def job(self, context: Context, file: str) -> Job:
        """See ``Step.job``."""
        return Job.of(
            f"states {self.window}",
            partition_window,
            run_path=str(context.run.path),
            split="audit",
            offset=self.window.offset,
            k=self.window.k,
            plugin_files=list(context.plugin_files),
        )

    def fault(self, file: str) -> str:
        """See ``Step.fault``."""
        place = layout.states_path("audit", (self.window.offset, self.window.k))
        return "" if file == place else f"{file!r}: expected {place!r}"


def make_file(
    function: str,
    output: str,
    inputs: Mapping[str, Any],
    values: Mapping[str, Any],
    plugin_files: Sequence[str] = (),
    progress: ReportProgress = report_nothing,
) -> dict[str, Any]:
    """Make a step's file or folder atomically, as a job.

    Args:
        function: the step's function, as ``module:name``; the executor has loaded
            ``plugin_files``.
        output: the path of the output.
        inputs: paths by argument.
        values: further arguments.
        plugin_files: files given by ``--plugin``.
        progress: called at the beginning and at the end.

    Raises:
        GapftError: the function made no output, or the disk is full.
    """
    progress(0, 1)
    path = Path(output)
    partial_path = path.with_name(f".{path.name}{PARTIAL}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        _remove_path(partial_path)  # from a stopped command
        paths = {
            name: Path(value) if isinstance(value, str) else [Path(item) for item in value]
            for name, value in inputs.items()
        }
        import_function(function)(partial_path, **paths, **values)
        if not partial_path.exists():
            raise GapftError(f"{function}: wrote nothing to its output path ({path})")
        partial_path.rename(path)
        sync_folder(path.parent)
    except OSError as error:
        raise not_writable_error(path, error) from error
    finally:
        _remove_path(partial_path)
    progress(1, 1)
    return {}


def _remove_path(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


class View:
    """An experiment's view of a run: its recipe, arms and sealed files.

    Args:
        run: the run directory.
        plugins: the loaded plugins.
        arms: the arms to consider: those with a training set, or the trained ones.
    """

    def __init__(self, run: RunDirectory, plugins: Plugins, arms: Iterable[Arm]) -> None:
        self.run = run
        self.plugins = plugins
        self._arms = tuple(arms)

    @property
    def recipe(self) -> Recipe:
        """The run's recipe."""
        return self.run.recipe

    def arms(self) -> Sequence[Arm]:
        """Return the run's arms; empty before the selection."""
        return self._arms

    def manifest(self) -> Manifest:
        """Return the run's manifest."""
        return self.run.manifest()

    def has(self, file: str) -> bool:
        """Return whether a file or folder of the run is sealed."""
        return file in self.manifest()["files"]

    def file(self, file: str) -> Path:
        """Return the path of a sealed file or folder, after checking its hash.

        Raises:
            UserError: it does not exist yet, or was changed.
        """
        return self.run.sealed(file)

    def generates(self) -> bool:
        """Return whether the recipe's backend generates; True if its plugin is not loaded.

        A backend that replays has only the responses of each arm's own adapter.
        """
        backend = self.recipe.model.backend
        if not self.plugins.has("sampler", backend):
            return True
        return self.plugins.get("sampler", backend).require_traits(SamplerTraits).generates

    def decode(
        self,
        arm: Arm,
        split: str = "audit",
        *,
        ids: Iterable[str] | None = None,
        samples: int = 0,
        scale: float = 1.0,
        verb: str = "decode",
    ) -> Decode:
        """Build the step that decodes problems with an arm's adapter and verifies the answers.

        It makes ``layout.decisions_path(arm, NAME)``. Responses and verdicts are kept in the store.

        Args:
            arm: the arm; ``SOURCE`` for no adapter.
            split: the split of the problems.
            ids: the problems to decode; None for all problems of the split.
            samples: number of samples of each problem instead of its deployment decode, drawn as in
                the search.
            scale: factor of the adapter's update; 1 for the adapter as trained.
            verb: the verb in progress messages.
        """
        inputs, sorted_ids = (
            {"problems": layout.problems_path(split)},
            None if ids is None else sorted(ids),
        )
        if arm.condition != SOURCE:
            inputs["adapter"] = layout.adapter_path(arm)
        settings = {
            "split": split,
            "ids": None if sorted_ids is None else content_hash(sorted_ids),
            "samples": samples,
            "scale": scale,
            "seed": arm.seed,
        }
        return Decode(audit_arm, inputs, settings, cheap=False, arm=arm, ids=sorted_ids, verb=verb)

    def states(self, window: Window) -> States:
        """Build the step that computes the audit's states from some samples of its search.

        It makes ``layout.states_path("audit", (window.offset, window.k))``.

        Args:
            window: the samples.
        """
        settings = {
            "offset": window.offset, "k": window.k, "keep": self.manifest()["task"].get("keep"),
        }  # fmt: skip
        inputs = {"responses": layout.responses_path("audit")}
        # ``gapft verify`` recomputes all tables of states
        return States(partition_window, inputs, settings, cheap=False, window=window)


def build_step_facts(
    step: Step, experiment: str, plugins: Plugins, files: Mapping[str, str]
) -> StepFacts:
    """Build a step's record for the manifest.

    Args:
        step: the step.
        experiment: the name of the experiment that requests it.
        plugins: the loaded plugins.
        files: the hashes of the run's sealed files.

    Raises:
        UserError: an input is not sealed.
    """
    function: Any = step.function
    is_bundled = str(function.__module__).startswith("gapft_harness.")
    facts: StepFacts = {
        "experiment": experiment,
        "step": function.__name__,
        "version": step.version,
        "settings": dict(step.settings),
        "operational": dict(step.operational),
        "inputs": {
            n: [files_of_argument] if isinstance(files_of_argument, str) else [*files_of_argument]
            for n, files_of_argument in step.inputs.items()
        },
        "code": "" if is_bundled else plugins.find_code_hash("experiment", experiment) or "",
        "key": "",
    }
    return {**facts, "key": compute_key(facts, files)}


def compute_key(facts: StepFacts, files: Mapping[str, str]) -> str:
    """Compute a step's key from its record in the manifest.

    Args:
        facts: the record.
        files: the hashes of the run's sealed files.

    Raises:
        UserError: an input is not sealed.
    """
    for file in list_inputs(facts):
        if file not in files:
            raise UserError(
                f"{file}: does not exist yet, but the experiment {facts['experiment']} reads it; "
                "run the stage that makes it first (gapft run runs all stages)"
            )
    inputs = {
        name: [files[file] for file in argument_files]
        for name, argument_files in facts["inputs"].items()
    }
    keyed = {key: facts[key] for key in ("step", "version", "settings", "code")}
    return content_hash({**keyed, "inputs": inputs})


def list_inputs(facts: StepFacts) -> list[str]:
    """List the files of the run that a recorded step reads."""
    return [file for argument_files in facts["inputs"].values() for file in argument_files]
