"""The recipe: one YAML file with everything that a run depends on. Unknown keys are errors."""

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
    """Select the model arguments that are fixed for a run; all if the sampler is unknown.

    A sampler declares the operational arguments, which only control how the model is called or how
    much memory it may use. Arguments that decide which responses are computed together
    (``batch_size``, ``max_num_seqs``) are fixed: the shape of a batch affects rounding, and
    rounding can decide between two nearly tied tokens.
    """
    if not plugins.has("sampler", backend):
        return dict(args)
    free = plugins.get("sampler", backend).declared(SamplerTraits).operational
    return {key: value for key, value in args.items() if key not in free}


#: Marks on a section's field: which results depend on it. Fields without a mark affect none;
#: conditions are compared by arm and audits by name (``run_directory/binding.py``).
_SEARCH, _ADAPTER = "search input", "adapter input"

#: Audits name files, where a dot would look like a variant of an arm's name.
_AUDIT_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_-]*")

#: Separates two conditions in the name of a figure for their difference.
MINUS = " minus "

#: Figure names under ``paper``: of the search by split, of a condition, or of a difference.
_FIGURE = re.compile(
    r"(pool|audit)\.(solved|(recovered|missed|verified)@[1-9]\d*)"
    r"|audit\.(greedy|pass@[1-9]\d*)"
    r"|.+ minus .+\.(delta|S|U|G)"
    r"|(?!.* minus ).+\.(pass_at_1|kappa_S|kappa_U|rho_G)"
    r"|(?!.* minus ).+\.(n|exposures|tokens|supervised_tokens|steps)"
)

#: Names that have another meaning in the place of an audit's name.
_NO_AUDIT = ("audit", "calibration", "pool", "states")

#: The paper's main comparison.
_CONDITIONS = ("gapft", "uniform", "replay", "all_verified")


class Recipe(RecipeSection):
    """A complete experiment. docs/recipe-keys.md lists every key."""

    name: Annotated[str, _SEARCH] = Field(
        pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$", description="name of the run"
    )
    description: str = Field("", description="one paragraph for readers")
    data: Annotated[Data, _SEARCH]
    model: Annotated[Model, _SEARCH]
    verifier: Annotated[VerifierChoice, _SEARCH] = Field(default_factory=VerifierChoice)
    search: Annotated[Search, _SEARCH] = Field(default_factory=Search)
    episode: Annotated[EpisodeChoice, _SEARCH] = Field(default_factory=EpisodeChoice)
    evidence: Annotated[EvidenceChoice, _ADAPTER] = Field(default_factory=EvidenceChoice)
    conditions: Conditions = Field(
        {name: Condition(selector=name) for name in _CONDITIONS},
        description="the conditions to train and compare: names of selectors, or names with "
        "[settings](recipes.md#conditions)",
    )
    seeds: tuple[Annotated[int, Field(ge=0)], ...] = Field(
        (13, 21, 73), min_length=1, description="selection and training seeds"
    )
    budget: Annotated[BudgetChoice, _ADAPTER] = Field(default_factory=BudgetChoice)
    training: Annotated[Training, _ADAPTER] = Field(default_factory=Training)
    audits: Mapping[str, AuditChoice] = Field(
        default_factory=dict,
        description="further audits, and named subsets of an audit, each reported separately; see "
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
        description="trackers that log every training: tensorboard, wandb, trackio, or a plugin's",
        examples=[["tensorboard"]],
    )
    statistics: Statistics = Field(default_factory=Statistics)
    paper: Mapping[str, Mapping[str, float]] = Field(
        default_factory=dict,
        description="figures that a paper prints for this run, by its tables; the search is "
        "compared with them before anything is trained: see "
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
            raise ValueError(f"contains a duplicate: {list(values)}")
        return values

    @field_validator("conditions")
    @classmethod
    def _name_files(cls, conditions: Mapping[str, Condition]) -> Mapping[str, Condition]:
        """Check the names of conditions, which name files; see ``run_directory/layout.py``."""
        for name in conditions:
            if found := {*"@/"}.intersection(name):
                raise ValueError(
                    f"{name!r} contains {' and '.join(sorted(found))}, but conditions name files, "
                    "where @ begins the name of a variant and / separates folders; register the "
                    "selector under another name"
                )
        return conditions

    @field_validator("audits")
    @classmethod
    def _name_folders(cls, wanted: Mapping[str, AuditChoice]) -> Mapping[str, AuditChoice]:
        """Check the audits and their names, which name folders (``run_directory/layout.py``)."""
        known = ["audit", *(name for name, choice in wanted.items() if choice.of is None)]
        for name, choice in wanted.items():
            if not _AUDIT_NAME.fullmatch(name) or name in _NO_AUDIT:
                raise ValueError(
                    f"{name!r} cannot name an audit; expected letters, digits, '_' and '-', but "
                    f"not {', '.join(_NO_AUDIT)}"
                )
            if fault := choice.fault():
                raise ValueError(f"{name!r} {fault}")
            if choice.of is not None and choice.of not in known:
                raise ValueError(
                    f"{name!r}: unknown audit {choice.of!r} in `of`; known: {', '.join(known)}"
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
                    f"unknown figure {name!r}; expected one such as pool.solved, pool.recovered@8, "
                    "audit.greedy, audit.pass@4, gapft.pass_at_1, gapft.kappa_S, gapft.steps, "
                    f"gapft{MINUS}uniform.delta"
                )
            if names.count(name) > 1:
                raise ValueError(f"{name!r} is given twice; expected one value per figure")
        return wanted

    @property
    def calibration(self) -> int | Literal["validation"] | None:
        """Source of the calibration split; None: there is none."""
        return self.experiments.get("scaling", {}).get("calibration")

    @property
    def further(self) -> tuple[str, ...]:
        """Name of the further audits."""
        return tuple(name for name, choice in self.audits.items() if choice.of is None)

    @property
    def subsets(self) -> dict[str, AuditChoice]:
        """Named subsets of audits."""
        return {name: choice for name, choice in self.audits.items() if choice.of is not None}

    def on(self, audit: str) -> Recipe:
        """Return this recipe with the task, limit and verifier of one audit."""
        if not audit:
            return self
        choice = self.audits[audit]
        data = self.data.model_copy(update={"task": choice.task, "audit_limit": choice.limit})
        return self.model_copy(update={"data": data, "verifier": choice.verifier})

    def searched_as(self, other: Recipe) -> Recipe:
        """Return this recipe with another's calibration and audits, which may be added later."""
        kept = self.without("scaling").experiments
        kept |= {name: of for name, of in other.experiments.items() if name == "scaling"}
        return self.model_copy(update={"experiments": kept, "audits": other.audits})

    def with_whole_paths(self, plugins: Plugins | None = None) -> Recipe:
        """Make the paths of id files and those among selectors' parameters absolute.

        Args:
            plugins: their selectors declare which parameters are paths (``files``); None: the
                bundled and installed plugins.
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
        """Return this recipe without one experiment."""
        kept = {key: of for key, of in self.experiments.items() if key != name}
        return self.model_copy(update={"experiments": kept})

    def identity(self, plugins: Plugins | None = None) -> dict[str, Any]:
        """Return every setting that determines a run's search.

        Of the experiments, only the calibration problems that scaling removes from the pool; of the
        model's arguments, only those that are fixed (``select_bound_args``).

        Args:
            plugins: the model's sampler declares its operational arguments; None: the bundled and
                installed plugins.
        """
        found = self._bound(_SEARCH)
        found["model"]["args"] = binding(
            self.model.backend, found["model"]["args"], plugins or load_plugins()
        )
        taken = self.calibration
        bound = {"scaling": {"calibration": taken}} if isinstance(taken, int) else {}
        return {**found, "experiments": bound}

    def trained_by(self) -> dict[str, Any]:
        """Return the other settings that determine training sets and adapters."""
        found = self._bound(_ADAPTER)
        del found["budget"]["token_tolerance"]  # only checked
        return found

    def _bound(self, since: str) -> dict[str, Any]:
        """Return the sections with that mark."""
        fields = type(self).model_fields.items()
        bound = {name for name, field in fields if since in field.metadata}
        return self.model_dump(mode="json", include=bound)

    def own_faults(self) -> dict[tuple[str, ...], str]:
        """Find contradictions in the conditions' settings, by key, before any search."""
        found: dict[tuple[str, ...], str] = {}
        for name, of in self.conditions.items():
            key = ("conditions", name, "training") if of.training else ("training",)
            if fault := self._training_fault(name):
                found.setdefault(key, fault)
            if of.k is not None and of.k > self.search.k:
                found["conditions", name, "k"] = (
                    f"must be at most search.k, which is {self.search.k}"
                )
        return found

    def _training_fault(self, condition: str) -> str:
        settings, n = self.training_of(condition), self.slots(condition)
        if settings.start_tokens is not None and self.model.start_tokens is None:
            return (
                f"start_tokens is {settings.start_tokens}, but model.start_tokens, which sets the "
                "generator's prompts, is missing; set it too"
            )
        groups = settings.update_groups
        if groups is None or not isinstance(n, int):
            return ""
        exposures = settings.repetitions * (n + self.budget.replay)
        if exposures >= groups:
            return ""
        return (
            f"update_groups is {groups}, but (budget.n + budget.replay) x training.repetitions is "
            f"only {exposures}, less than one exposure per step"
        )

    def training_of(self, condition: str | None) -> Training:
        """Return the training settings of a condition: section ``training`` with its own keys.

        Raises:
            ValidationError: one of its own keys is unknown or has a wrong value; never raised for a
                recipe that was loaded from a file.
        """
        of = self.conditions.get(condition or "")
        return _trained(self.training, of.training if of else {})

    def trainers(self) -> list[str]:
        """Return the names of the trainers of all conditions."""
        return list(dict.fromkeys(self.training_of(name).trainer for name in self.conditions))

    def k(self, condition: str) -> int:
        """Return K of a condition: how many samples of the search define its evidence."""
        return self.conditions[condition].k or self.search.k

    def windows(self) -> list[int]:
        """Return every K of a condition that is below the search's, ascending."""
        return sorted({self.k(name) for name in self.conditions} - {self.search.k})

    def settled(self, condition: Condition) -> dict[str, Any]:
        """Return all settings of a condition's training sets and adapters, with defaults."""
        training = _trained(self.training, condition.training).model_dump(mode="json")
        said = condition.model_dump(mode="json")
        return said | {"k": condition.k or self.search.k, "training": training}

    def slots(self, condition: str) -> int | str:
        """Return the slots of a matched condition: a number, ``recovered`` or ``verified``."""
        return self.conditions[condition].n or self.budget.n

    def selectors(self) -> list[str]:
        """Return the names of the selectors of all conditions."""
        return list(dict.fromkeys(of.selector for of in self.conditions.values()))

    def replicates(self) -> dict[str, str]:
        """Map each condition that repeats another's training to that condition."""
        return find_replicates(self.model_dump(mode="json"))

    def run_as(self, other: Recipe) -> Recipe:
        """Return this recipe with the model and executor sections of one of the same identity."""
        return self.model_copy(update={"model": other.model, "executor": other.executor})


def _trained(settings: Training, own: Mapping[str, Any]) -> Training:
    """Override keys of the section ``training``."""
    if not own:
        return settings
    said = settings.model_dump(mode="json")
    if isinstance(nested := own.get("grpo"), Mapping):
        own = {**own, "grpo": {**said.get("grpo", {}), **nested}}
    content = json.dumps({**said, **own})
    return Training.model_validate_json(content, strict=True)


_PREFIX = "bundled:"


def resolve_model(name: str) -> str:
    """Return the folder of a bundled model; return any other name unchanged.

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
    """Return the recipe's model arguments with ``pretrained`` resolved."""
    return {**recipe.model.args, "pretrained": resolve_model(recipe.model.args["pretrained"])}


def sampler_settings(recipe: Recipe) -> SamplerSettings:
    """Build the sampler's settings from the recipe."""
    return SamplerSettings(
        backend=recipe.model.backend,
        model_args=model_args(recipe),
        chat_template=bool(recipe.model.chat_template),
        system_instruction=recipe.model.system_instruction,
        threads=recipe.executor.threads_each,
        processes=recipe.executor.sharing,
        start_tokens=recipe.model.start_tokens,
    )
