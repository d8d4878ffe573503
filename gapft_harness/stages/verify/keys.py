"""Verify the keys of the store: recompute each from the run's records.

A table or adapter records the contents of its keys. Parts that can be derived from the recipe, the
manifest, selections and adapters must equal the derived values. The other parts, such as libraries
and accelerators, must be equal for all arms of a comparison.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gapft_harness.core.identities import content_hash
from gapft_harness.core.records import GREEDY, SOURCE, Arm, Example
from gapft_harness.core.streams import SampleStreams
from gapft_harness.core.weights import WEIGHTS
from gapft_harness.hooks.manager import Plugins
from gapft_harness.hooks.registration import SamplerTraits, TrainerTraits
from gapft_harness.recipe.recipe import build_sampler_settings, select_fixed_args
from gapft_harness.run_directory import layout
from gapft_harness.run_directory.directory import CALIBRATION, RunDirectory
from gapft_harness.run_directory.manifest import Manifest
from gapft_harness.run_directory.parquet import read_facts, read_ids
from gapft_harness.run_directory.tables import read_judged
from gapft_harness.stages.generation.chunks import DecodePhase
from gapft_harness.stages.generation.generation import (
    VERSION,
    build_deployment_phase,
    build_sample_phases,
    build_sampled_decoding,
    build_search_phases,
    count_chunk_problems,
    describe_phase,
    read_decoding,
)
from gapft_harness.stages.generation.made_from import REPORTED_MODEL_KEYS, describe_adapter
from gapft_harness.stages.generation.verdicts import VERSION as JUDGE_VERSION
from gapft_harness.stages.generation.verdicts import describe_verdicts
from gapft_harness.stages.integrity.differences import compare_values
from gapft_harness.stages.search.recorded import build_search_settings
from gapft_harness.stages.train.stored import MADE_FROM, STORED, TRAINED_AS, describe_training
from gapft_harness.stages.train.stored import VERSION as TRAIN_VERSION
from gapft_harness.store.recorded import read_groups, require_key

#: Parts of contents that must be equal for all arms of a comparison.
_COMMON_SAMPLER_PARTS = ("code", "libraries", "accelerators", "environment")
_COMMON_VERIFIER_PARTS = ("code", "libraries", "python", "gapft-harness")
_COMMON_TRAINING_PARTS = ("base", "trainer", "libraries", "accelerators", "environment", "searched")

#: Parts of a sampler's description that are equal with every adapter, on every machine.
_MODEL_KEYS = (
    "backend", "architecture", "dtype", "max_length", "chat_template", "chat_template_sha256",
    "system_instruction", "start_ids", "end_ids", "generation_config_ignored",
)  # fmt: skip

#: Parts of a training's key that cannot be derived from anything else that a run records.
_UNDERIVED_PARTS = (
    "trainer", "base", "libraries", "accelerators", "environment", "searched", "arguments",
)  # fmt: skip


@dataclass(slots=True)
class KeyChecker:
    """Recomputes the keys of a run's tables and adapters.

    Attributes:
        run: the run.
        manifest: its manifest.
        plugins: the loaded plugins; some checks need the run's sampler and trainer.
        tables: the number of tables without a fault, counted by ``check_table``.
        adapters: the number of adapters without a fault, counted by ``check_adapter``.
    """

    run: RunDirectory
    manifest: Manifest
    plugins: Plugins
    tables: int = 0
    adapters: int = 0
    #: (comparison, part) -> the first table or adapter of the comparison, and its value
    _first_values: dict[tuple[str, str], tuple[str, Any]] = field(default_factory=dict)

    def check_table(self, relative: str, split: str) -> Iterator[str]:
        """Yield faults of a table's keys, compared with recipe, manifest and adapters.

        Args:
            relative: the path of a split's responses or an arm's decisions, in the run directory.
            split: the split of its problems.
        """
        name = layout.find_table_name(relative)
        facts = read_facts(self.run.path / relative)
        stored = self.manifest.get("stored", {}).get(name)
        if not stored or "made_from" not in facts:
            yield f"{relative}: does not record the contents of its keys"
            return
        contents = read_groups(facts["made_from"])
        faults = [*compare_values(relative, facts, {"stored": stored}, "manifest.json has")]
        if sorted(contents) != facts["stored"]:
            faults.append(f"{relative}: made_from and stored name different groups")
        generated = [content for content in contents.values() if content["step"] == "generate"]
        judged = [content for content in contents.values() if content["step"] == "judge"]
        if not (generated and judged):
            yield f"{relative}: does not record the inputs of its responses and verdicts"
            return
        table = GeneratedTable(self.run, self.manifest, self.plugins, relative, split, facts)
        faults += table.check_contents(generated, judged)
        sampler, verifier = generated[0]["sampler"], judged[0]["verifier"]
        # compare a model by its files: a server has a different model name for each adapter
        model = {"model": sampler["model"].get("files")}
        # another system made the responses of logs, perhaps of a model without files here
        logs = f"responses of logs, {split}" if "imported" in facts else None
        faults += self._compare_with_first(relative, logs or "all tables", ("model",), model)
        faults += self._compare_with_first(relative, logs or split, _COMMON_SAMPLER_PARTS, sampler)
        faults += self._compare_with_first(
            relative, f"verdicts on {split}", _COMMON_VERIFIER_PARTS, verifier
        )
        yield from faults
        if not faults:
            self.tables += 1

    def check_adapter(self, arm: Arm, examples: Sequence[Example]) -> Iterator[str]:
        """Yield differences between an adapter's key and its selection and recipe."""
        folder = layout.adapter_path(arm)
        path = self.run.path / folder
        where = f"{folder}/{MADE_FROM}"
        facts = json.loads((path / "training.json").read_text("utf-8"))
        content = json.loads((path / MADE_FROM).read_text("utf-8"))
        require_key(str(facts.get(STORED)), content)
        recipe = self.run.recipe
        name = recipe.resolve_training(arm.condition).trainer
        documented = "arm" not in content
        if self.plugins.has("trainer", name):
            traits = self.plugins.get("trainer", name).require_traits(TrainerTraits)
            documented = traits.as_documented
        replicate = recipe.conditions[arm.condition].replicate
        expected = {
            "step": "train",
            "version": TRAIN_VERSION,
            **describe_training(recipe, arm, examples, replicate, documented),
        }
        faults = [*compare_values(where, content, expected)]
        faults += [
            f"{where}: unexpected entry {part}"
            for part in sorted(content.keys() - expected.keys() - {*_UNDERIVED_PARTS})
        ]
        if content["trainer"]["name"] != name:
            faults.append(
                f"{where}: trainer is {content['trainer']['name']}, but the recipe has {name}"
            )
        faults += _compare_weights(where, content["base"], facts.get("base_sha256"))
        faults += self._compare_with_first(
            where, f"trainer {name}", _COMMON_TRAINING_PARTS, content
        )
        yield from faults
        if not faults:
            self.adapters += 1

    def check_shared(self, trained: Sequence[Arm], tables: Iterable[str]) -> Iterator[str]:
        """Yield faults of adapters and tables with equal keys.

        Their contents must be equal, and the manifest must name the arm that was trained.

        Args:
            trained: arms with an adapter, in the order of the manifest.
            tables: tables of decisions.
        """
        training, first_by_key = self.manifest["training"], dict[str, str]()
        backend = self.run.recipe.model.backend
        generates = not self.plugins.has("sampler", backend) or (
            self.plugins.get("sampler", backend).require_traits(SamplerTraits).generates
        )
        for name in (name for name in training if layout.parse_arm(name) in trained):
            facts = training[name]
            original = first_by_key.setdefault(str(facts.get(STORED, name)), name)
            expected_original = original if original != name and generates else None
            if facts.get(TRAINED_AS) != expected_original:
                yield (
                    f"manifest.json, training of {name}: {TRAINED_AS} is {facts.get(TRAINED_AS)}, "
                    f"but its key is that of {expected_original or 'no other arm'}"
                )
            weights = training[original].get("adapter_sha256")
            if facts.get("adapter_sha256") != weights:
                yield f"adapters of {original} and {name}: have the same key but different weights"
        table_by_key: dict[tuple[str, ...], str] = {}
        for table in tables:
            stored = self.manifest.get("stored", {}).get(layout.find_table_name(table))
            original = table_by_key.setdefault(tuple(stored or [table]), table)
            if original != table:
                yield from self._compare_rows(table, original)

    def _compare_rows(self, table: str, original: str) -> Iterator[str]:
        """Yield the first problem on which two tables with the same keys differ.

        Verdicts may differ if one of them is a timeout or an error.
        """
        rows = {
            (problem_id, judged_response.response.index): judged_response
            for problem_id, judged in read_judged(self.run.path / original)
            for judged_response in judged
        }
        for problem_id, judged in read_judged(self.run.path / table):
            for judged_response in judged:
                other = rows.get((problem_id, judged_response.response.index), judged_response)
                lacks_verdict = {judged_response.verdict.status, other.verdict.status} & {
                    "timeout",
                    "error",
                }
                if judged_response.response != other.response or (
                    judged_response != other and not lacks_verdict
                ):
                    yield (
                        f"{table}: has the keys of {original}, but differs on problem {problem_id}"
                    )
                    return

    def _compare_with_first(
        self, where: str, comparison: str, parts: Iterable[str], described: Mapping[str, Any]
    ) -> Iterator[str]:
        """Yield parts that differ from those of the comparison's first table or adapter."""
        for part in parts:
            value = described.get(part)
            other, first_value = self._first_values.setdefault((comparison, part), (where, value))
            if value != first_value:
                yield (
                    f"{other} and {where} were made with different {part}: "
                    f"{_describe_difference(first_value, value)}"
                )


@dataclass(frozen=True, slots=True)
class GeneratedTable:
    """A generated table with its recorded facts."""

    run: RunDirectory
    manifest: Manifest
    plugins: Plugins
    relative: str
    split: str
    facts: Mapping[str, Any]

    def check_contents(
        self, generated: Sequence[dict[str, Any]], judged: Sequence[dict[str, Any]]
    ) -> Iterator[str]:
        """Yield differences between the contents of its keys and recipe, manifest and adapters.

        Args:
            generated: the contents of the responses' keys.
            judged: the contents of the verdicts' keys.
        """
        sampler, verifier = generated[0]["sampler"], judged[0]["verifier"]
        expected = self._compute_contents(sampler, verifier)
        responses = _remove_repeats(responses for responses, _ in expected)
        verdicts = _remove_repeats(verdicts for _, verdicts in expected)
        yield from self._compare_contents(generated, responses)
        yield from self._compare_contents(judged, verdicts)
        yield from self._check_sampler(sampler)
        yield from self._check_verifier(verifier)
        yield from self._check_samples()

    def _compute_contents(
        self, sampler: Mapping[str, Any], verifier: Mapping[str, Any]
    ) -> list[tuple[dict[str, Any], dict[str, Any]]]:
        """Compute the contents of the keys of responses and of their verdicts, for each phase.

        Args:
            sampler: the table's description of the sampler.
            verifier: the table's description of the verifier.
        """
        episode, phases = self.manifest["task"]["episode"], self.build_phases()
        search = self.run.recipe.search
        streams, size = self.build_streams(), count_chunk_problems(search, phases)
        contents = []
        for phase in phases:
            phase_inputs = describe_phase(
                phase, sampler, streams, episode["attempts"], verifier, size
            )
            responses = {"step": "generate", "version": VERSION, **phase_inputs}
            key = content_hash(responses)
            verdict_inputs = describe_verdicts(phase, key, verifier, episode["executions"])
            verdicts = {"step": "judge", "version": JUDGE_VERSION, **verdict_inputs}
            contents.append((responses, verdicts))
        return contents

    def build_phases(self) -> list[DecodePhase]:
        """Build the phases of the responses that the table must contain."""
        greedy = read_decoding(self.manifest["task"])
        search = self.run.recipe.search
        if self._arm is None and self.split != CALIBRATION:
            return build_search_phases(greedy, search)
        samples = int(self.facts["drawn"]["samples"])
        if self._arm is None or not samples:
            return [build_deployment_phase(greedy, search)]
        problems = len([*read_ids(self.run.path / self.relative)])
        return build_sample_phases(build_sampled_decoding(greedy, search), samples // problems)

    def build_streams(self) -> SampleStreams:
        """Build the random streams from which its samples must be drawn."""
        seed, arm = self.run.recipe.search.seed, self._arm
        if arm is None:
            return SampleStreams(seed, "search", self.split)
        return SampleStreams(
            seed, "decode", self.split, None if arm.condition == SOURCE else arm.seed
        )

    @property
    def _arm(self) -> Arm | None:
        place = layout.parse_path(self.relative)
        return None if place is None else place.arm

    @property
    def _where(self) -> str:
        return f"{self.relative}, made_from"

    def _compare_contents(
        self, recorded: Sequence[dict[str, Any]], expected: Sequence[dict[str, Any]]
    ) -> Iterator[str]:
        """Yield the parts in which recorded contents differ from recomputed ones."""
        unexpected = [content for content in recorded if content not in expected]
        missing = [content for content in expected if content not in recorded]
        if len(unexpected) != len(missing):
            yield (
                f"{self._where}: describes {len(recorded)} groups of the step "
                f"{recorded[0]['step']}, expected {len(expected)}"
            )
        for other, content in zip(unexpected, missing, strict=False):
            yield from compare_values(self._where, other, content)
            for part in sorted(other.keys() - content.keys()):
                yield f"{self._where}: unexpected entry {part}"

    def _check_sampler(self, sampler: Mapping[str, Any]) -> Iterator[str]:
        settings = build_sampler_settings(self.run.recipe)
        if self._arm is None:
            settings = build_search_settings(self.run.recipe, self.run.path, self.split)
        expected: dict[str, Any] = {
            "backend": settings.backend,
            "chat_template": settings.chat_template,
            "system_instruction": settings.system_instruction,
            "start_tokens": settings.start_tokens,
        }
        if self.plugins.has("sampler", settings.backend):
            arguments = select_fixed_args(settings.backend, settings.model_args, self.plugins)
            arguments.pop("pretrained", None)
            expected["arguments"] = _insert_hashes(arguments, sampler.get("arguments"))
        yield from compare_values(self._where, sampler, expected, "the recipe has")
        source = self.facts.get("source") or self.manifest["source"]
        recorded = self.manifest["source"]
        for key in _MODEL_KEYS if self._arm else (*_MODEL_KEYS, "adapter"):
            if key in source and key in recorded and source[key] != recorded[key]:
                yield (
                    f"{self.relative}, source: {key} is {source[key]}, manifest.json has "
                    f"{recorded[key]}"
                )
        if self._arm and "adapter" in source and source["adapter"] != self.facts.get("adapter"):
            yield f"{self.relative}, source: its adapter differs from the table's"
        model = sampler["model"]
        yield from _compare_weights(self._where, model, source.get("weights_sha256"))
        if "files" not in model:
            keys = (
                REPORTED_MODEL_KEYS if "source" in self.facts else ("weights_sha256", "start_ids")
            )
            reported = {key: source[key] for key in keys if key in source}
            name = [
                str(settings.model_args.get(key)) for key in ("pretrained", "model", "revision")
            ]
            yield from compare_values(self._where, model, {"name": name, **reported}, "the run has")
        yield from self._check_adapter(sampler["adapter"])

    def _check_adapter(self, recorded: Mapping[str, Any] | None) -> Iterator[str]:
        """Check that the model has the arm's own adapter, or none for a split."""
        arm, place = self._arm, layout.parse_path(self.relative)
        if arm is None or arm.condition == SOURCE:
            if recorded is not None:
                yield f"{self._where}: names an adapter, but the table is of the source model"
            return
        if recorded is None:
            yield f"{self._where}: names no adapter, expected that of {arm.name}"
            return
        if recorded.get("arm", arm.name) != arm.name:
            yield f"{self._where}: adapter is that of {recorded['arm']}, expected {arm.name}"
        reported = self.facts.get("adapter")
        if reported and "weights" in recorded and reported["weights_sha256"] != recorded["weights"]:
            yield f"{self._where}: adapter differs from the one that the sampler reported"
        folder = self.run.path / layout.adapter_path(arm)
        if "weights" in recorded and folder.is_dir():
            expected = describe_adapter(folder)
            if place is not None and place.experiment:
                del expected["weights"]  # they may be scaled
            relation = f"{layout.adapter_path(arm)} has"
            yield from compare_values(f"{self._where}, adapter", recorded, expected, relation)

    def _check_verifier(self, verifier: Mapping[str, Any]) -> Iterator[str]:
        task = self.manifest["task"]
        expected = {
            "name": task["verifier"],
            "parameters": _insert_hashes(task["verifier_params"], verifier.get("parameters")),
        }
        if self.facts.get("imported", {}).get("verdicts") != "file":
            expected["describes"] = self.facts.get("judged_by")
        yield from compare_values(f"{self._where}, verifier", verifier, expected, "the run has")

    def _check_samples(self) -> Iterator[str]:
        """Check that every response has its stream's seed, and that no sample is missing."""
        search, streams = self.run.recipe.search, self.build_streams()
        expected_indices = None
        if self._arm is None and self.split != CALIBRATION:
            expected_indices = [GREEDY, *range(search.k)]
        for problem_id, judged in read_judged(self.run.path / self.relative):
            indices = [judged_response.response.index for judged_response in judged]
            if expected_indices is not None and indices != expected_indices:
                yield (
                    f"{self.relative}: problem {problem_id} has the samples {indices}, expected "
                    f"{expected_indices} ({GREEDY} is the deployment decode)"
                )
                return
            for judged_response in judged:
                attempt, index = (
                    len(judged_response.response.attempts) + 1,
                    judged_response.response.index,
                )
                (seed,) = streams.derive_seeds(
                    problem_id, attempt, [index], search.deployment is not None
                )
                if judged_response.response.seed != seed:
                    yield (
                        f"{self.relative}: problem {problem_id}, index {index} has the seed "
                        f"{judged_response.response.seed}, but its random stream gives {seed}"
                    )
                    return


def _remove_repeats(contents: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Remove contents that are equal to an earlier one; keep the order."""
    distinct_contents: list[dict[str, Any]] = []
    for content in contents:
        if content not in distinct_contents:
            distinct_contents.append(content)
    return distinct_contents


def _compare_weights(where: str, model: Mapping[str, Any], weights: str | None) -> Iterator[str]:
    """Yield a fault if a described model does not have the recorded hash of weights."""
    recorded = model.get("weights_sha256")
    if "files" in model:
        digest = hashlib.sha256()  # as ``weights_hash`` computes it
        for name, sha256 in sorted(model["files"].items()):
            if any(Path(name).match(pattern) for pattern in WEIGHTS):
                digest.update(f"{name} {sha256}\n".encode())
        recorded = digest.hexdigest()
    if weights is not None and recorded != weights:
        yield f"{where}: has a model with the weights {recorded}, but the run has {weights}"


def _insert_hashes(setting: Any, recorded: Any) -> Any:
    """Replace a setting's paths by the recorded hashes, as in the contents of keys."""
    if isinstance(setting, Mapping):
        hashes = recorded if isinstance(recorded, Mapping) else {}
        return {key: _insert_hashes(value, hashes.get(key)) for key, value in setting.items()}
    if isinstance(setting, list | tuple):
        items = recorded if isinstance(recorded, list) else []
        return [
            _insert_hashes(value, items[position] if position < len(items) else None)
            for position, value in enumerate(setting)
        ]
    is_hash = isinstance(recorded, Mapping) and recorded.keys() in ({"file"}, {"folder"})
    return recorded if isinstance(setting, str) and is_hash else setting


def _describe_difference(first_value: Any, value: Any) -> str:
    """Describe how two values differ; for two mappings, by the differing entries only."""
    if isinstance(first_value, Mapping) and isinstance(value, Mapping):
        keys = sorted(
            key for key in {*first_value, *value} if first_value.get(key) != value.get(key)
        )
        return ", ".join(f"{key} {first_value.get(key)} and {value.get(key)}" for key in keys)
    return f"{first_value} and {value}"
