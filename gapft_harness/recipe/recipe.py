"""The recipe: one YAML file with all settings of a run. Unknown keys are errors."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field

from gapft_harness.core.errors import UserError, did_you_mean
from gapft_harness.hooks.manager import Plugins, load_plugins
from gapft_harness.hooks.protocols import SamplerSettings
from gapft_harness.hooks.registration import SamplerTraits
from gapft_harness.hooks.thoughts import THINK_END_TOKEN
from gapft_harness.recipe.conditions import Condition, Conditions, find_replicates
from gapft_harness.recipe.sections import (
    BudgetChoice,
    Data,
    Distinct,
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


def select_fixed_args(backend: str, args: Mapping[str, Any], plugins: Plugins) -> dict[str, Any]:
    """Select the model arguments that must not change during a run.

    These are all except the operational arguments that the sampler declares; for an unknown sampler
    they are all. Operational arguments only control how the model is called or how much memory it
    may use. Arguments that decide which responses are computed together (``batch_size``,
    ``max_num_seqs``) are fixed: the shape of a batch affects rounding, and rounding can decide
    between two nearly tied tokens.
    """
    if not plugins.has("sampler", backend):
        return dict(args)
    operational = plugins.get("sampler", backend).require_traits(SamplerTraits).operational
    return {key: value for key, value in args.items() if key not in operational}


#: Sections without a part in what all training sets and adapters of a run depend on.
_FREE_SECTIONS = {
    "conditions", "seeds", "experiments", "executor", "tracker", "statistics", "paper", "notes",
    "description",
}  # fmt: skip

#: Separates the two conditions in the name of a figure about their difference.
MINUS = " minus "

#: Names of figures that a paper prints: of the search, of a difference, or of a condition.
_FIGURE = re.compile(
    r"(pool|audit)\.(solved|(recovered|missed|verified|G_of_GU)@[1-9]\d*)"
    r"|audit\.(greedy|pass@[1-9]\d*)"
    r"|.+ minus .+\.((other_rule_)?(delta|ci95_low|ci95_high)|S|U|G|changed)"
    r"|(?!.* minus ).+\.(pass_at_1|kappa_S|kappa_U|rho_G|k_eq|other_rule_pass_at_1|invalid)"
    r"|(?!.* minus ).+\.(kappa_S|kappa_U|rho_G|net_gain|null_S|null_U)@[1-9]\d*"
    r"|(?!.* minus ).+\.(n|exposures|tokens|supervised_tokens|steps|flat_solved_share)"
)


def check_figures(tables: Mapping[str, Mapping[str, float]]) -> Mapping[str, Mapping[str, float]]:
    """Check the names of the figures that a paper prints.

    Raises:
        ValueError: a name is unknown, or is given twice.
    """
    names = [name for figures in tables.values() for name in figures]
    for name in names:
        if not _FIGURE.fullmatch(name):
            raise ValueError(
                f"unknown figure {name!r}; expected one such as pool.solved, pool.recovered@8, "
                "audit.greedy, audit.pass@4, gapft.pass_at_1, gapft.kappa_S, gapft.steps, "
                f"gapft{MINUS}uniform.delta"
            )
        if names.count(name) > 1:
            raise ValueError(f"{name!r} is given twice; expected one value per figure")
    return tables


#: The selectors of the paper's main comparison.
_DEFAULT_SELECTORS = ("gapft", "uniform", "replay", "all_verified")


class Recipe(RecipeSection):
    """A complete experiment. docs/recipe-keys.md lists every key."""

    name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$", description="name of the run")
    description: str = Field("", description="one paragraph for readers")
    data: Data
    model: Model
    verifier: VerifierChoice = Field(default_factory=VerifierChoice)
    search: Search = Field(default_factory=Search)
    episode: EpisodeChoice = Field(default_factory=EpisodeChoice)
    evidence: EvidenceChoice = Field(default_factory=EvidenceChoice)
    conditions: Conditions = Field(
        {name: Condition(selector=name) for name in _DEFAULT_SELECTORS},
        description="the conditions to train and compare: names of selectors, or names with "
        "[settings](run.md#conditions)",
    )
    seeds: Annotated[tuple[Annotated[int, Field(ge=0)], ...], Distinct] = Field(
        (13, 21, 73), min_length=1, description="selection and training seeds"
    )
    budget: BudgetChoice = Field(default_factory=BudgetChoice)
    training: Training = Field(default_factory=Training)
    experiments: dict[str, dict[str, Any]] = Field(
        default_factory=dict,
        description="experiments by name, each with [its own settings](#keys-of-experiments)",
    )
    executor: ExecutorChoice = Field(default_factory=ExecutorChoice)
    tracker: Literal["tensorboard", "wandb", "trackio"] | None = Field(
        None, description="accelerate's tracker that logs every training"
    )
    statistics: Statistics = Field(default_factory=Statistics)
    paper: Annotated[Mapping[str, Mapping[str, float]], AfterValidator(check_figures)] = Field(
        default_factory=dict,
        description="figures that a paper prints for this run, by its tables; the search is "
        "compared with them before anything is trained: see "
        "[its section](paper.md#printed-numbers)",
    )
    notes: tuple[str, ...] = Field((), description="remarks shown in the report")

    @property
    def calibration(self) -> int | Literal["validation"] | None:
        """Calibration problems: a number of training problems, or the validation split; or None."""
        return self.experiments.get("scaling", {}).get("calibration")

    def add_think_end_token(self, params: Mapping[str, Any]) -> dict[str, Any]:
        """Return a verifier's parameters with the model's ``think_end_token``, unless they set it.

        Samplers return complete responses; the verifier's wrapper removes the reasoning.
        """
        token = self.model.args.get(THINK_END_TOKEN)
        return dict(params) if token is None else {THINK_END_TOKEN: token, **params}

    def find_selection_seed(self, seed: int) -> int:
        """Return the seed that draws the training sets of a training seed."""
        own_seed = self.budget.selection_seed
        return seed if own_seed is None else own_seed

    def without_experiment(self, name: str) -> Recipe:
        """Return this recipe without one experiment."""
        experiments = {key: settings for key, settings in self.experiments.items() if key != name}
        return self.model_copy(update={"experiments": experiments})

    def build_identity(self, plugins: Plugins | None = None) -> dict[str, Any]:
        """Return the settings that all training sets and adapters of a run depend on.

        The settings of conditions are not included. Of experiments there is only the number of
        calibration problems that ``scaling`` removes from the pool, and of the model there are only
        the fixed arguments (``select_fixed_args``).

        Args:
            plugins: the plugins with the model's sampler; None: the bundled and installed plugins.
        """
        sections = self.model_dump(mode="json", exclude=_FREE_SECTIONS)
        sections["model"]["args"] = select_fixed_args(
            self.model.backend, sections["model"]["args"], plugins or load_plugins()
        )
        for key in ("token_tolerance", "position_tolerance"):
            del sections["budget"][key]  # only checked
        calibration = self.calibration
        experiments = (
            {"scaling": {"calibration": calibration}} if isinstance(calibration, int) else {}
        )
        return {**sections, "experiments": experiments}

    def find_condition_faults(self) -> dict[str, str]:
        """Find contradictions in the settings of conditions; return a description by dotted key."""
        faults: dict[str, str] = {}
        for name, condition in self.conditions.items():
            key = f"conditions.{name}.training" if condition.training else "training"
            if fault := self._find_training_fault(name):
                faults.setdefault(key, fault)
            if condition.k is not None and condition.k > self.search.k:
                faults[f"conditions.{name}.k"] = (
                    f"must be at most search.k, which is {self.search.k}; found {condition.k}"
                )
        return faults

    def _find_training_fault(self, condition: str) -> str:
        """Describe a contradiction in a condition's training settings; empty if there is none."""
        settings = self.resolve_training(condition)
        n = self.find_slots(condition)
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

    def resolve_training(self, condition: str | None) -> Training:
        """Return the section ``training``, overridden by the condition's own training settings.

        Raises:
            ValidationError: one of the condition's keys is unknown or has a wrong value; never
                raised for a recipe that was loaded from a file.
        """
        condition_settings = self.conditions.get(condition or "")
        return _override_training(
            self.training, condition_settings.training if condition_settings else {}
        )

    def list_trainers(self) -> list[str]:
        """Return the names of the trainers of all conditions."""
        return list(dict.fromkeys(self.resolve_training(name).trainer for name in self.conditions))

    def find_k(self, condition: str) -> int:
        """Return K of a condition: the number of samples that define its evidence."""
        return self.conditions[condition].k or self.search.k

    def list_smaller_k(self) -> list[int]:
        """Return the K of all conditions, ascending, without the K of the search."""
        return sorted({self.find_k(name) for name in self.conditions} - {self.search.k})

    def find_slots(self, condition: str) -> int | str:
        """Return n of a matched condition: a number, ``recovered`` or ``verified``."""
        return self.conditions[condition].n or self.budget.n

    def map_replicates(self) -> dict[str, str]:
        """Map each condition that repeats another's training to that condition."""
        return find_replicates(self.model_dump(mode="json"))

    def with_execution_of(self, other: Recipe) -> Recipe:
        """Return this recipe with the sections ``model`` and ``executor`` of another recipe."""
        return self.model_copy(update={"model": other.model, "executor": other.executor})


def _override_training(settings: Training, overrides: Mapping[str, Any]) -> Training:
    """Override keys of the section ``training``; the keys under ``grpo`` are merged."""
    if not overrides:
        return settings
    section = settings.model_dump(mode="json")
    if isinstance(nested := overrides.get("grpo"), Mapping):
        overrides = {**overrides, "grpo": {**section.get("grpo", {}), **nested}}
    content = json.dumps({**section, **overrides})
    return Training.model_validate_json(content, strict=True)


_BUNDLED_PREFIX = "bundled:"


def resolve_model(name: str) -> str:
    """Return the folder of a bundled model; return any other name unchanged.

    Raises:
        UserError: no such model is bundled.
    """
    if not name.startswith(_BUNDLED_PREFIX):
        return name
    from gapft_harness.demo import find_code_policy, find_policy

    folders = {"demo": find_policy, "demo-code": find_code_policy}
    bundled = name.removeprefix(_BUNDLED_PREFIX)
    if bundled not in folders:
        raise UserError(f"unknown bundled model {bundled!r}; {did_you_mean(bundled, folders)}")
    return str(folders[bundled]())


def resolve_model_args(recipe: Recipe) -> dict[str, Any]:
    """Return the recipe's model arguments, with a bundled model replaced by its folder."""
    return {**recipe.model.args, "pretrained": resolve_model(recipe.model.args["pretrained"])}


def build_sampler_settings(recipe: Recipe) -> SamplerSettings:
    """Build the sampler's settings from the recipe, without ``think_end_token``.

    See ``Recipe.add_think_end_token``.
    """
    model_args = resolve_model_args(recipe)
    model_args.pop(THINK_END_TOKEN, None)
    return SamplerSettings(
        backend=recipe.model.backend,
        model_args=model_args,
        chat_template=bool(recipe.model.chat_template),
        system_instruction=recipe.model.system_instruction,
        threads=recipe.executor.threads_per_worker,
        start_tokens=recipe.model.start_tokens,
    )
