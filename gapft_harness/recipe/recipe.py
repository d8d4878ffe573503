"""The recipe: one YAML file that says everything a run depends on. A typo is an error."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, field_validator

from gapft_harness.core.errors import UserError, did_you_mean
from gapft_harness.hooks.manager import Plugins, load_plugins
from gapft_harness.hooks.protocols import SamplerSettings
from gapft_harness.hooks.registered import SamplerTraits
from gapft_harness.recipe.conditions import Condition, Conditions, find_replicates
from gapft_harness.recipe.sections import (
    AuditChoice,
    BudgetChoice,
    Data,
    EpisodeChoice,
    EvidenceChoice,
    ExecutorChoice,
    Model,
    RecipeSection,
    Search,
    Statistics,
    Training,
    VerifierChoice,
)


def binding(backend: str, args: Mapping[str, Any], plugins: Plugins) -> dict[str, Any]:
    """The model arguments that a run is bound to; all of them where no sampler has that name.

    A sampler declares which ones only say how a model is asked, or how much memory it may take.
    Those that decide which responses are computed side by side (``batch_size``, ``max_num_seqs``)
    are bound: a batch's shape decides rounding, and of two nearly tied tokens rounding decides
    which is drawn.
    """
    if not plugins.has("sampler", backend):
        return dict(args)
    free = plugins.get("sampler", backend).declared(SamplerTraits).operational
    return {key: value for key, value in args.items() if key not in free}


#: On a section's field: what of a run is made again after a change. Nothing where a field does not
#: say; conditions are compared by their arms, audits by their names (``run_directory/binding.py``).
_SEARCH, _ADAPTER = "all of it", "what was selected, and what came of that"

#: Files are named after audits, and a variant of an arm's name has no dot.
_AUDIT_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_-]*")

#: Between two conditions, in the name of a figure of their difference.
MINUS = " minus "

#: A figure of ``paper``: of the search by its split, else a condition's or of a difference.
_FIGURE = re.compile(
    r"(pool|audit)\.(solved|(recovered|missed|verified)@[1-9]\d*)"
    r"|audit\.(greedy|pass@[1-9]\d*)"
    r"|.+ minus .+\.(delta|S|U|G)"
    r"|(?!.* minus ).+\.(pass_at_1|kappa_S|kappa_U|rho_G)"
    r"|(?!.* minus ).+\.(n|exposures|tokens|supervised_tokens|steps)"
)

#: Names that mean something else where an audit's name stands.
_NO_AUDIT = ("audit", "calibration", "pool", "states")

#: The paper's main comparison.
_CONDITIONS = ("gapft", "uniform", "replay", "all_verified")


class Recipe(RecipeSection):
    """A whole experiment. docs/recipe-keys.md has every key."""

    name: Annotated[str, _SEARCH] = Field(
        pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$", description="names the run"
    )
    description: str = Field("", description="one paragraph for people")
    data: Annotated[Data, _SEARCH]
    model: Annotated[Model, _SEARCH]
    verifier: Annotated[VerifierChoice, _SEARCH] = Field(default_factory=VerifierChoice)
    search: Annotated[Search, _SEARCH] = Field(default_factory=Search)
    episode: Annotated[EpisodeChoice, _SEARCH] = Field(default_factory=EpisodeChoice)
    evidence: Annotated[EvidenceChoice, _ADAPTER] = Field(default_factory=EvidenceChoice)
    conditions: Conditions = Field(
        {name: Condition(selector=name) for name in _CONDITIONS},
        description="what is compared, one trained condition each: names of selectors, or names "
        "with [settings](recipes.md#conditions)",
    )
    seeds: tuple[Annotated[int, Field(ge=0)], ...] = Field(
        (13, 21, 73), min_length=1, description="selection and training seeds"
    )
    budget: Annotated[BudgetChoice, _ADAPTER] = Field(default_factory=BudgetChoice)
    training: Annotated[Training, _ADAPTER] = Field(default_factory=Training)
    audits: Mapping[str, AuditChoice] = Field(
        default_factory=dict,
        description="further audits, and named subsets of an audit, each reported by itself; see "
        "[its section](recipes.md#several-audits)",
        examples=[{"name": {"of": "audit", "items": "ids.txt"}}],
    )
    experiments: dict[str, dict[str, Any]] = Field(
        default_factory=dict,
        description="experiments by name, each with [its own settings](#keys-of-experiments)",
        examples=[{"name": {"key": "value"}}],
    )
    executor: ExecutorChoice = Field(default_factory=ExecutorChoice)
    trackers: tuple[str, ...] = Field(
        (),
        description="what logs every training: tensorboard, wandb, trackio, or a plugin's",
        examples=[["tensorboard"]],
    )
    statistics: Statistics = Field(default_factory=Statistics)
    paper: Mapping[str, Mapping[str, float]] = Field(
        default_factory=dict,
        description="figures that a paper prints for this run, by its tables; a search is held "
        "against them before anything is trained: see "
        "[its section](recipes.md#figures-that-a-paper-prints)",
        examples=[{"Table 1": {"pool.recovered@8": 3190, "gapft.pass_at_1": 62.59}}],
    )
    notes: tuple[str, ...] = Field(
        (), description="remarks shown in the report", examples=[["a remark"]]
    )

    @field_validator("seeds", "trackers")
    @classmethod
    def _distinct(cls, values: tuple[Any, ...]) -> tuple[Any, ...]:
        if len(set(values)) != len(values):
            raise ValueError(f"names one thing twice: {list(values)}")
        return values

    @field_validator("conditions")
    @classmethod
    def _name_files(cls, conditions: Mapping[str, Condition]) -> Mapping[str, Condition]:
        """Files are named after them; see ``run_directory/layout.py``."""
        for name in conditions:
            if found := {*"@/"}.intersection(name):
                raise ValueError(
                    f"{name!r} has {' and '.join(sorted(found))}, and files are named after "
                    "conditions, where @ begins a variant's name and / a folder; register the "
                    "selector under another name"
                )
        return conditions

    @field_validator("audits")
    @classmethod
    def _name_folders(cls, wanted: Mapping[str, AuditChoice]) -> Mapping[str, AuditChoice]:
        """Folders and files are named after them; see ``run_directory/layout.py``."""
        known = ["audit", *(name for name, choice in wanted.items() if choice.of is None)]
        for name, choice in wanted.items():
            if not _AUDIT_NAME.fullmatch(name) or name in _NO_AUDIT:
                raise ValueError(
                    f"{name!r} cannot name an audit; expected letters, digits, '_' and '-', and "
                    f"none of {', '.join(_NO_AUDIT)}"
                )
            if fault := choice.fault():
                raise ValueError(f"{name!r} {fault}")
            if choice.of is not None and choice.of not in known:
                raise ValueError(
                    f"{name!r} is of {choice.of!r}, which is no audit; known: {', '.join(known)}"
                )
        return wanted

    @field_validator("paper")
    @classmethod
    def _known_figures(
        cls, wanted: Mapping[str, Mapping[str, float]]
    ) -> Mapping[str, Mapping[str, float]]:
        names = [name for figures in wanted.values() for name in figures]
        for name in names:
            if not _FIGURE.fullmatch(name):
                raise ValueError(
                    f"{name!r} is no figure; expected one such as pool.solved, pool.recovered@8, "
                    "audit.greedy, audit.pass@4, gapft.pass_at_1, gapft.kappa_S, gapft.steps, "
                    f"gapft{MINUS}uniform.delta"
                )
            if names.count(name) > 1:
                raise ValueError(f"{name!r} is given twice; a figure has one source")
        return wanted

    @property
    def calibration(self) -> int | Literal["validation"] | None:
        """What the calibration split is made of; None: there is none."""
        return self.experiments.get("scaling", {}).get("calibration")

    @property
    def further(self) -> tuple[str, ...]:
        """The names of the further audits."""
        return tuple(name for name, choice in self.audits.items() if choice.of is None)

    @property
    def subsets(self) -> dict[str, AuditChoice]:
        """The named subsets."""
        return {name: choice for name, choice in self.audits.items() if choice.of is not None}

    def on(self, audit: str) -> Recipe:
        """This recipe with the task, limit and verifier that an audit names as its own."""
        if not audit:
            return self
        choice = self.audits[audit]
        data = self.data.model_copy(update={"task": choice.task, "audit_limit": choice.limit})
        return self.model_copy(update={"data": data, "verifier": choice.verifier})

    def searched_as(self, other: Recipe) -> Recipe:
        """This recipe with the calibration and the audits of another, which may come later."""
        kept = self.without("scaling").experiments
        kept |= {name: of for name, of in other.experiments.items() if name == "scaling"}
        return self.model_copy(update={"experiments": kept, "audits": other.audits})

    def with_whole_paths(self, plugins: Plugins | None = None) -> Recipe:
        """Make the paths of id files and those among selectors' parameters absolute.

        Args:
            plugins: selectors that declare which parameters are paths (``files``); None: those
                that ship or are installed.
        """
        plugins = plugins or load_plugins()
        audits = {
            name: of.model_copy(update={"items": str(Path(of.items).resolve())})
            if isinstance(of.items, str)
            else of
            for name, of in self.audits.items()
        }
        conditions = {
            name: condition.with_whole_paths(plugins.selector_traits(condition.selector).files)
            for name, condition in self.conditions.items()
        }
        return self.model_copy(update={"audits": audits, "conditions": conditions})

    def without(self, name: str) -> Recipe:
        """This recipe, and nothing of an experiment."""
        kept = {key: of for key, of in self.experiments.items() if key != name}
        return self.model_copy(update={"experiments": kept})

    def identity(self, plugins: Plugins | None = None) -> dict[str, Any]:
        """All that a run's search is made by.

        Of the experiments only what scaling takes out of the pool; of the model's arguments those
        that do not only say how it is asked (``binding``).

        Args:
            plugins: those that are loaded: the model's sampler declares these arguments. None:
                what ships or is installed.
        """
        found = self._bound(_SEARCH)
        found["model"]["args"] = binding(
            self.model.backend, found["model"]["args"], plugins or load_plugins()
        )
        taken = self.calibration
        bound = {"scaling": {"calibration": taken}} if isinstance(taken, int) else {}
        return {**found, "experiments": bound}

    def trained_by(self) -> dict[str, Any]:
        """What a run's training sets and adapters are made by besides, but for its conditions."""
        found = self._bound(_ADAPTER)
        del found["budget"]["token_tolerance"]  # only checked
        return found

    def _bound(self, since: str) -> dict[str, Any]:
        """The sections of that kind."""
        fields = type(self).model_fields.items()
        bound = {name for name, field in fields if since in field.metadata}
        return self.model_dump(mode="json", include=bound)

    def own_faults(self) -> dict[tuple[str, ...], str]:
        """What of the conditions' settings cannot be, by key; it is known before any search."""
        found: dict[tuple[str, ...], str] = {}
        for name, of in self.conditions.items():
            key = ("conditions", name, "training") if of.training else ("training",)
            if fault := self._training_fault(name):
                found.setdefault(key, fault)
            if of.k is not None and of.k > self.search.k:
                found["conditions", name, "k"] = (
                    f"must be among the samples of the one search, and search.k is {self.search.k}"
                )
        return found

    def _training_fault(self, condition: str) -> str:
        settings, n = self.training_of(condition), self.slots(condition)
        if settings.start_tokens is not None and self.model.start_tokens is None:
            return (
                f"start_tokens is {settings.start_tokens}, and nothing says what the generator "
                "sees; set model.start_tokens too"
            )
        groups = settings.update_groups
        if groups is None or not isinstance(n, int):
            return ""
        exposures = settings.repetitions * (n + self.budget.replay)
        if exposures >= groups:
            return ""
        return (
            f"update_groups is {groups}, but (budget.n + budget.replay) x training.repetitions is "
            f"only {exposures}, less than one exposure a step"
        )

    def training_of(self, condition: str | None) -> Training:
        """How a condition is trained: the section ``training`` with the keys of its own.

        Raises:
            ValidationError: a key of its own is unknown or its value wrong; none of a recipe that
                was read.
        """
        of = self.conditions.get(condition or "")
        return _trained(self.training, of.training if of else {})

    def trainers(self) -> list[str]:
        """The names of the trainers that its conditions are trained by."""
        return list(dict.fromkeys(self.training_of(name).trainer for name in self.conditions))

    def k(self, condition: str) -> int:
        """K of a condition: the samples of the search that its evidence is of."""
        return self.conditions[condition].k or self.search.k

    def windows(self) -> list[int]:
        """The K below that of the search that conditions have, ascending."""
        return sorted({self.k(name) for name in self.conditions} - {self.search.k})

    def settled(self, condition: Condition) -> dict[str, Any]:
        """All that a condition's training sets and adapters are made by, defaults among it."""
        training = _trained(self.training, condition.training).model_dump(mode="json")
        said = condition.model_dump(mode="json")
        return said | {"k": condition.k or self.search.k, "training": training}

    def slots(self, condition: str) -> int | str:
        """The slots of a matched condition: a number, ``recovered`` or ``verified``."""
        return self.conditions[condition].n or self.budget.n

    def selectors(self) -> list[str]:
        """The names of the selectors that its conditions call."""
        return list(dict.fromkeys(of.selector for of in self.conditions.values()))

    def replicates(self) -> dict[str, str]:
        """Map each condition that repeats the training of another one to that condition."""
        return find_replicates(self.model_dump(mode="json"))

    def run_as(self, other: Recipe) -> Recipe:
        """This recipe, with jobs run and the model asked as another of the same identity says."""
        return self.model_copy(update={"model": other.model, "executor": other.executor})


def _trained(settings: Training, own: Mapping[str, Any]) -> Training:
    """The section ``training`` with some keys of its own."""
    if not own:
        return settings
    said = settings.model_dump(mode="json")
    if isinstance(nested := own.get("grpo"), Mapping):
        own = {**own, "grpo": {**said.get("grpo", {}), **nested}}
    content = json.dumps({**said, **own})
    return Training.model_validate_json(content, strict=True)


_PREFIX = "bundled:"


def resolve_model(name: str) -> str:
    """Gives the folder of a bundled model; any other name comes back as it is.

    Raises:
        UserError: no such model is bundled.
    """
    if not name.startswith(_PREFIX):
        return name
    from gapft_harness.demo import code_policy_path, policy_path

    folders = {"demo": policy_path, "demo-code": code_policy_path}
    bundled = name.removeprefix(_PREFIX)
    if bundled not in folders:
        raise UserError(f"unknown bundled model {bundled!r}; {did_you_mean(bundled, folders)}")
    return str(folders[bundled]())


def model_args(recipe: Recipe) -> dict[str, Any]:
    """The recipe's model arguments with ``pretrained`` resolved."""
    return {**recipe.model.args, "pretrained": resolve_model(recipe.model.args["pretrained"])}


def sampler_settings(recipe: Recipe) -> SamplerSettings:
    """What the recipe says of generation, for the sampler."""
    return SamplerSettings(
        backend=recipe.model.backend,
        model_args=model_args(recipe),
        chat_template=bool(recipe.model.chat_template),
        system_instruction=recipe.model.system_instruction,
        threads=recipe.executor.threads_each,
        processes=recipe.executor.sharing,
        start_tokens=recipe.model.start_tokens,
    )
