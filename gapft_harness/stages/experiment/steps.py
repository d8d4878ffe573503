"""Steps of experiments: what each makes in a run, from what, and under which key.

A step makes one file or folder of the run. Its record in the manifest (section ``steps``) says what
it was made from; its key is the hash of that, with the digests of its inputs. Who asks for the same
key gets what is there; anything else is made again.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from gapft_harness.core.errors import GapftError, UserError
from gapft_harness.core.files import PARTIAL, sync_folder, unwritable
from gapft_harness.core.identities import content_hash
from gapft_harness.core.processes import resolve
from gapft_harness.core.records import SOURCE, Arm
from gapft_harness.hooks.manager import Plugins
from gapft_harness.hooks.protocols import Job, ReportProgress, report_nothing
from gapft_harness.hooks.registered import SamplerTraits
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
        function: at the top of a module; its name is the step's.
        inputs: by argument, the sealed file or files of the run that it reads.
        settings: JSON values that its output depends on.
        operational: JSON values that do not matter to what it finds, such as paths to mention;
            they are not in its key.
        version: to be raised when its output changes meaning.
        repeats: the same inputs and settings give the same bytes.
        cheap: ``gapft verify`` runs it again and compares; only where it repeats.
    """

    function: Callable[..., object]
    inputs: Mapping[str, Input] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)
    operational: Mapping[str, Any] = field(default_factory=dict)
    version: int = 1
    repeats: bool = True
    cheap: bool = True

    def job(self, context: Context, file: str) -> Job:
        """Describe the work for an executor."""
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
        """Return the inputs as paths of this machine, by argument."""
        return {
            name: str(run_path / given)
            if isinstance(given, str)
            else [str(run_path / one) for one in given]
            for name, given in self.inputs.items()
        }

    def fault(self, file: str) -> str:
        """Say why the step cannot make this file of a run; empty if it can."""
        folder, _, name = file.partition("/")
        if folder in RUN_FOLDERS or not folder.isidentifier():
            return f"{file!r}: expected a folder of the experiment's own, such as NAME/ARM.json"
        if not name or "/" in name or name.startswith("."):
            return f"{file!r}: expected FOLDER/NAME"
        return ""


#: Folders of a run that are not an experiment's.
RUN_FOLDERS = (
    "pool", "audit", "calibration", "selections", "adapters", "decisions", "tracking", "report",
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Decode(Step):
    """Decodes of a split's problems with an arm's adapter, verified; see ``View.decode``.

    Attributes:
        arm: whose adapter; of ``SOURCE`` none.
        ids: the problems, ascending; None: all of the split.
        verb: what people see that is done to the arm.
    """

    arm: Arm
    ids: Sequence[str] | None = None
    verb: str = "decode"

    @property
    def split(self) -> str:
        """Whose problems they are."""
        return str(self.settings["split"])

    @property
    def scale(self) -> float:
        """Of the adapter's update."""
        return float(self.settings["scale"])

    @property
    def sampled(self) -> bool:
        """Whether they are samples, not one greedy decode of each problem."""
        return bool(self.settings["samples"])

    def job(self, context: Context, file: str) -> Job:
        """See ``Step.job``."""
        given = {key: self.settings[key] for key in ("split", "samples", "scale")}
        ids = None if self.ids is None else list(self.ids)
        return context.arm_job(self.verb, partial(audit_arm, file=file, ids=ids, **given), self.arm)

    def fault(self, file: str) -> str:
        """See ``Step.fault``."""
        place = layout.read(file)
        if place and place.kind == layout.DECISIONS and place.of and place.arm == self.arm:
            return ""
        return f"{file!r}: expected layout.decisions({self.arm}, NAME)"


@dataclass(frozen=True, kw_only=True)
class States(Step):
    """The audit's states by some of its samples; see ``View.states``.

    Attributes:
        window: these samples.
    """

    window: Window

    def job(self, context: Context, file: str) -> Job:
        """See ``Step.job``."""
        return Job.of(
            f"states {self.window}",
            partition_window,
            run_path=str(context.run.path),
            split=layout.audit(),
            offset=self.window.offset,
            k=self.window.k,
            plugin_files=list(context.plugin_files),
        )

    def fault(self, file: str) -> str:
        """See ``Step.fault``."""
        place = layout.states(layout.audit(), (self.window.offset, self.window.k))
        return "" if file == place else f"{file!r}: expected {place!r}"


def make_file(
    function: str,
    output: str,
    inputs: Mapping[str, Any],
    values: Mapping[str, Any],
    plugin_files: Sequence[str] = (),
    progress: ReportProgress = report_nothing,
) -> dict[str, Any]:
    """Make a step's file or folder, whole or not at all: a job's function.

    Args:
        function: the step's, as ``module:name``; the executor has loaded ``plugin_files``.
        output: where it belongs.
        inputs: paths by argument.
        values: further arguments.
        plugin_files: files given by ``--plugin``.
        progress: called at the beginning and at the end.

    Raises:
        GapftError: the function made nothing, or the disk is full.
    """
    progress(0, 1)
    path = Path(output)
    partial_path = path.with_name(f".{path.name}{PARTIAL}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        _remove(partial_path)  # of a command that was stopped
        paths = {
            name: Path(given) if isinstance(given, str) else [Path(one) for one in given]
            for name, given in inputs.items()
        }
        resolve(function)(partial_path, **paths, **values)
        if not partial_path.exists():
            raise GapftError(f"{function} made nothing at the path that it was given ({path})")
        partial_path.rename(path)
        sync_folder(path.parent)
    except OSError as error:
        raise unwritable(path, error) from error
    finally:
        _remove(partial_path)
    progress(1, 1)
    return {}


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


class View:
    """What an experiment sees of a run: its recipe, arms and sealed files.

    Args:
        run: the run directory.
        plugins: those that are loaded.
        arms: the arms that count: those with a training set, or the trained ones.
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
        """Return the run's arms; before the selection there are none."""
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
            UserError: it is not there yet, or was changed.
        """
        return self.run.sealed(file)

    def generates(self) -> bool:
        """Return whether the recipe's backend generates; True where its plugin is not loaded.

        One that replays has the responses of each arm's own adapter, and no others.
        """
        backend = self.recipe.model.backend
        if not self.plugins.has("sampler", backend):
            return True
        return self.plugins.get("sampler", backend).declared(SamplerTraits).generates

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
        """Return the step that decodes problems with an arm's adapter and verifies the answers.

        It makes ``layout.decisions(arm, NAME)``. Responses and verdicts are kept in the store.

        Args:
            arm: whose adapter; of ``SOURCE`` none.
            split: whose problems.
            ids: of these problems those to decode; None: all.
            samples: in place of one greedy decode so many samples of each problem, drawn as the
                search draws its own.
            scale: of the adapter's update; 1: as it was trained.
            verb: what people see that is done to the arm.
        """
        inputs, chosen = {"problems": layout.problems(split)}, None if ids is None else sorted(ids)
        if arm.condition != SOURCE:
            inputs["adapter"] = layout.adapter(arm)
        settings = {
            "split": split,
            "ids": None if chosen is None else content_hash(chosen),
            "samples": samples,
            "scale": scale,
            "seed": arm.seed,
        }
        return Decode(audit_arm, inputs, settings, cheap=False, arm=arm, ids=chosen, verb=verb)

    def states(self, window: Window) -> States:
        """Return the step that tells the audit's states by some samples of its search.

        It makes ``layout.states("audit", (window.offset, window.k))``.

        Args:
            window: these samples.
        """
        audit = layout.audit()
        settings = {
            "offset": window.offset, "k": window.k, "keep": self.manifest()["task"].get("keep"),
        }  # fmt: skip
        inputs = {"responses": layout.responses(audit)}
        # ``gapft verify`` computes all tables of states again
        return States(partition_window, inputs, settings, cheap=False, window=window)


def describe(step: Step, experiment: str, plugins: Plugins, files: Mapping[str, str]) -> StepFacts:
    """Return what the manifest records of a step.

    Args:
        step: the step.
        experiment: the name of the experiment that asks for it.
        plugins: those that are loaded.
        files: the hashes of the run's sealed files.

    Raises:
        UserError: an input is not sealed.
    """
    function: Any = step.function
    bundled = str(function.__module__).startswith("gapft_harness.")
    facts: StepFacts = {
        "experiment": experiment,
        "step": function.__name__,
        "version": step.version,
        "settings": dict(step.settings),
        "operational": dict(step.operational),
        "inputs": {n: [of] if isinstance(of, str) else [*of] for n, of in step.inputs.items()},
        "code": "" if bundled else plugins.code("experiment", experiment) or "",
        "key": "",
    }
    return {**facts, "key": compute_key(facts, files)}


def compute_key(facts: StepFacts, files: Mapping[str, str]) -> str:
    """Compute a step's key from what the manifest records of it.

    Args:
        facts: the record.
        files: the hashes of the run's sealed files.

    Raises:
        UserError: an input is not sealed.
    """
    for file in list_inputs(facts):
        if file not in files:
            raise UserError(
                f"{file}: is not there yet, and the experiment {facts['experiment']} reads it; run "
                "the stage that makes it first (gapft run goes through all of them)"
            )
    inputs = {name: [files[file] for file in of] for name, of in facts["inputs"].items()}
    keyed = {key: facts[key] for key in ("step", "version", "settings", "code")}
    return content_hash({**keyed, "inputs": inputs})


def list_inputs(facts: StepFacts) -> list[str]:
    """List the files of the run that a recorded step reads."""
    return [file for given in facts["inputs"].values() for file in given]
