"""Verification of keys: each is recomputed from what the run records.

A table or adapter records the contents of its keys in the store. The parts that follow from recipe,
manifest, selections and adapters must be equal to these; the other parts, such as libraries and
accelerators, must be equal within a comparison.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import Any

from gapft_harness.core.identities import content_hash
from gapft_harness.core.json_values import changes
from gapft_harness.core.records import GREEDY, SOURCE, Arm, Example
from gapft_harness.core.streams import SampleStreams
from gapft_harness.core.weights import WEIGHTS, weights_hash
from gapft_harness.hooks.manager import Plugins
from gapft_harness.hooks.registered import SamplerTraits, TrainerTraits
from gapft_harness.recipe.recipe import binding, sampler_settings
from gapft_harness.run_directory import layout
from gapft_harness.run_directory.directory import CALIBRATION, RunDirectory
from gapft_harness.run_directory.manifest import Manifest, task_of
from gapft_harness.run_directory.parquet import read_facts, read_ids
from gapft_harness.run_directory.tables import read_judged
from gapft_harness.stages.generation.chunks import Phase
from gapft_harness.stages.generation.generation import (
    VERSION,
    chunk_size,
    decoding_from,
    describe_phase,
    greedy_phase,
    sample_phases,
    sampled_decoding,
    search_phases,
    stops,
)
from gapft_harness.stages.generation.made_from import SAID_OF_MODELS
from gapft_harness.stages.generation.verdicts import VERSION as JUDGE_VERSION
from gapft_harness.stages.generation.verdicts import describe_verdicts
from gapft_harness.stages.integrity.differences import unequal
from gapft_harness.stages.train.stored import MADE_FROM, STORED, TRAINED_AS, describe_training
from gapft_harness.stages.train.stored import VERSION as TRAIN_VERSION
from gapft_harness.store.explain import is_version
from gapft_harness.store.recorded import read_groups, require_key

#: Parts of descriptions that must be equal for all arms of a comparison.
_OF_SAMPLERS = ("model", "code", "libraries", "accelerators", "environment")
_OF_VERIFIERS = ("code", "libraries", "python", "gapft-harness")
_OF_TRAININGS = ("base", "trainer", "libraries", "accelerators", "environment", "searched")

#: Parts that may differ if the run accepts other versions.
_VERSIONS = ("libraries", "accelerators")

#: Parts of a training's key that cannot be derived from anything else that a run records.
_UNDERIVED = (
    "trainer", "base", "libraries", "accelerators", "environment", "searched", "arguments",
)  # fmt: skip


@dataclass(slots=True)
class Keys:
    """Recomputes the keys of a run's tables and adapters.

    Attributes:
        run: the run.
        manifest: its manifest.
        plugins: the loaded plugins; loaded samplers and trainers allow more checks.
        tables: tables whose keys agree, with the split of their problems.
        adapters: the arms whose adapters' keys agree.
    """

    run: RunDirectory
    manifest: Manifest
    plugins: Plugins
    tables: dict[str, str]
    adapters: list[Arm]
    _first: dict[tuple[str, str], tuple[str, Any]] = field(default_factory=dict)

    def check_table(self, relative: str, split: str) -> Iterator[str]:
        """Compare the contents of a table's keys with recipe, manifest and adapters.

        Args:
            relative: a split's responses, or an arm's decisions.
            split: the split of its problems.
        """
        name = layout.name_of(relative)
        facts = read_facts(self.run.path / relative)
        stored = self.manifest.get("stored", {}).get(name)
        if "imported" in facts:
            if stored or "made_from" in facts:
                yield f"{relative}: was imported, but is recorded as generated"
            return
        if not stored or "made_from" not in facts:
            yield f"{relative}: does not record the contents of its keys"
            return
        contents = read_groups(facts["made_from"])
        faults = [*unequal(relative, facts, {"stored": stored}, "manifest.json has")]
        if sorted(contents) != facts["stored"]:
            faults.append(f"{relative}: made_from describes other groups than stored names")
        generated = [of for of in contents.values() if of["step"] == "generate"]
        judged = [of for of in contents.values() if of["step"] == "judge"]
        if not (generated and judged):
            yield f"{relative}: does not record the inputs of its responses and verdicts"
            return
        table = GeneratedTable(self.run, self.manifest, self.plugins, relative, split, facts)
        faults += table.check(generated, judged)
        sampler, verifier = generated[0]["sampler"], judged[0]["verifier"]
        # a server gives the model another name for each adapter
        model = {"model": sampler["model"].get("files")}
        faults += self._alike(relative, split, _OF_SAMPLERS, {**sampler, **model})
        faults += self._alike(relative, f"verdicts on {split}", _OF_VERIFIERS, verifier)
        yield from faults
        if not faults:
            self.tables[relative] = split

    def check_adapter(self, arm: Arm, examples: Sequence[Example]) -> Iterator[str]:
        """Compare the inputs of an adapter with its selection and the recipe."""
        folder = layout.adapter(arm)
        path = self.run.path / folder
        where = f"{folder}/{MADE_FROM}"
        facts = json.loads((path / "training.json").read_text("utf-8"))
        content = json.loads((path / MADE_FROM).read_text("utf-8"))
        require_key(str(facts.get(STORED)), content)
        recipe = self.run.recipe
        name = recipe.training_of(arm.condition).trainer
        documented = "arm" not in content
        if self.plugins.has("trainer", name):
            traits = self.plugins.get("trainer", name).declared(TrainerTraits)
            documented = traits.as_documented
        replicate = recipe.conditions[arm.condition].replicate
        expected = {
            "step": "train",
            "version": TRAIN_VERSION,
            **describe_training(recipe, arm, examples, replicate, documented),
            "processes": facts.get("processes"),
            "fsdp": bool(facts.get("fsdp", False)),
        }
        faults = [*unequal(where, content, expected)]
        faults += [
            f"{where}: unexpected entry {part}"
            for part in sorted(content.keys() - expected.keys() - {*_UNDERIVED})
        ]
        if content["trainer"]["name"] != name:
            faults.append(
                f"{where}: trainer is {content['trainer']['name']}, but the recipe has {name}"
            )
        faults += _compare_weights(where, content["base"], facts.get("base_sha256"))
        faults += self._alike(where, f"trainer {name}", _OF_TRAININGS, content)
        yield from faults
        if not faults:
            self.adapters.append(arm)

    def check_shared(self, trained: Sequence[Arm], tables: Iterable[str]) -> Iterator[str]:
        """Check that adapters and responses with equal keys are equal.

        Args:
            trained: arms with an adapter, in the order of the manifest.
            tables: tables of decisions.
        """
        training, first = self.manifest["training"], dict[str, str]()
        backend = self.run.recipe.model.backend
        generates = not self.plugins.has("sampler", backend) or (
            self.plugins.get("sampler", backend).declared(SamplerTraits).generates
        )
        for name in (name for name in training if layout.arm_of(name) in trained):
            facts = training[name]
            original = first.setdefault(str(facts.get(STORED, name)), name)
            right = original if original != name and generates else None
            if facts.get(TRAINED_AS) != right:
                yield (
                    f"manifest.json, training of {name}: {TRAINED_AS} is {facts.get(TRAINED_AS)}, "
                    f"but its key is that of {right or 'no other arm'}"
                )
            weights = training[original].get("adapter_sha256")
            if facts.get("adapter_sha256") != weights:
                yield f"adapters of {original} and {name}: have the same key but different weights"
        of_key: dict[tuple[str, ...], str] = {}
        for table in tables:
            stored = self.manifest.get("stored", {}).get(layout.name_of(table))
            original = of_key.setdefault(tuple(stored or [table]), table)
            if original != table:
                yield from self._compare_rows(table, original)

    def _compare_rows(self, table: str, original: str) -> Iterator[str]:
        """Compare the responses that two tables with the same keys have in common."""
        rows = {
            (problem_id, of.response.index): of
            for problem_id, judged in read_judged(self.run.path / original)
            for of in judged
        }
        for problem_id, judged in read_judged(self.run.path / table):
            for of in judged:
                other = rows.get((problem_id, of.response.index), of)
                is_late = {of.verdict.status, other.verdict.status} & {"timeout", "error"}
                if of.response != other.response or (of != other and not is_late):
                    yield (
                        f"{table}: has the keys of {original}, but differs on problem {problem_id}"
                    )
                    return

    def _alike(
        self, where: str, comparison: str, parts: Iterable[str], described: Mapping[str, Any]
    ) -> Iterator[str]:
        """Yield the parts in which a description differs from the first of its comparison."""
        for part in parts:
            if part in _VERSIONS and self.manifest.get("reuse_versions"):
                continue  # ``check_versions`` reports them
            value = described.get(part)
            other, before = self._first.setdefault((comparison, part), (where, value))
            if value != before:
                yield (
                    f"{other} and {where} were made with different {part}: "
                    f"{_differing(before, value)}"
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

    def check(
        self, generated: Sequence[dict[str, Any]], judged: Sequence[dict[str, Any]]
    ) -> Iterator[str]:
        """Compare the contents of its keys with recipe, manifest and adapters.

        Args:
            generated: the contents of the responses' keys.
            judged: the contents of the verdicts' keys.
        """
        samplers = distinct(of["sampler"] for of in generated)
        verifiers = distinct(of["verifier"] for of in judged)
        for described in (samplers, verifiers):
            yield from self._check_versions(described)
        responses, verdicts = list[dict[str, Any]](), list[dict[str, Any]]()
        for sampler, verifier in product(samplers, verifiers):
            for of_phase, on_phase in self.contents(sampler, verifier).values():
                responses.append(of_phase)
                verdicts.append(on_phase)
        if len(samplers) > 1 or len(verifiers) > 1:  # a version may have made only some phases
            responses = [of for of in responses if of in generated]
            verdicts = [of for of in verdicts if of in judged]
        yield from self._compare(generated, distinct(responses))
        yield from self._compare(judged, distinct(verdicts))
        for sampler in samplers:
            yield from self._check_sampler(sampler)
        for verifier in verifiers:
            yield from self._check_verifier(verifier)
        yield from self._check_samples()

    def _check_versions(self, described: Sequence[Mapping[str, Any]]) -> Iterator[str]:
        """Yield differences among the makers of one table, except for accepted versions."""
        for other in described[1:]:
            differing = [key for key, *_ in changes(described[0], other)]
            if not self.manifest.get("reuse_versions") or not all(map(is_version, differing)):
                yield f"{self._where}: was made with different {', '.join(differing)}"

    def contents(
        self, sampler: Mapping[str, Any], verifier: Mapping[str, Any]
    ) -> dict[Phase, tuple[dict[str, Any], dict[str, Any]]]:
        """Compute the contents of the keys of each phase's responses and verdicts.

        Args:
            sampler: the table's description of the sampler.
            verifier: the table's description of the verifier.
        """
        episode, phases = task_of(self.manifest, self.split)["episode"], self.phases()
        streams, size = self.streams(), chunk_size(self.run.recipe.search, phases)
        found = {}
        for phase in phases:
            of_phase = describe_phase(phase, sampler, streams, episode["attempts"], verifier, size)
            responses = {"step": "generate", "version": VERSION, **of_phase}
            key = content_hash(responses)
            of_verdicts = describe_verdicts(phase, key, verifier, episode["executions"])
            verdicts = {"step": "judge", "version": JUDGE_VERSION, **of_verdicts}
            found[phase] = responses, verdicts
        return found

    def phases(self) -> list[Phase]:
        """Build the phases of the responses that the table must contain."""
        greedy = decoding_from(task_of(self.manifest, self.split))
        search = self.run.recipe.search
        if self._arm is None and self.split != CALIBRATION:
            return search_phases(greedy, search, stops(search, self.split))
        samples = int(self.facts["drawn"]["samples"])
        if self._arm is None or not samples:
            return [greedy_phase(greedy)]
        problems = len([*read_ids(self.run.path / self.relative)])
        return sample_phases(sampled_decoding(greedy, search), samples // problems)

    def streams(self) -> SampleStreams:
        """Build the random streams that its samples must be drawn from."""
        seed, arm = self.run.recipe.search.seed, self._arm
        if arm is None:
            return SampleStreams(seed, "search", self.split)
        return SampleStreams(
            seed, "decode", self.split, None if arm.condition == SOURCE else arm.seed
        )

    @property
    def _arm(self) -> Arm | None:
        place = layout.read(self.relative)
        return None if place is None else place.arm

    @property
    def _where(self) -> str:
        return f"{self.relative}, made_from"

    def _compare(
        self, recorded: Sequence[dict[str, Any]], right: Sequence[dict[str, Any]]
    ) -> Iterator[str]:
        """Yield the parts in which recorded contents differ from recomputed ones."""
        others = [content for content in recorded if content not in right]
        lacking = [content for content in right if content not in recorded]
        if len(others) != len(lacking):
            yield (
                f"{self._where}: describes {len(recorded)} groups of the step "
                f"{recorded[0]['step']}, but recomputed there are {len(right)}"
            )
        for other, content in zip(others, lacking, strict=False):
            yield from unequal(self._where, other, content)
            for part in sorted(other.keys() - content.keys()):
                yield f"{self._where}: unexpected entry {part}"

    def _check_sampler(self, sampler: Mapping[str, Any]) -> Iterator[str]:
        settings = sampler_settings(self.run.recipe)
        expected: dict[str, Any] = {
            "backend": settings.backend,
            "chat_template": settings.chat_template,
            "system_instruction": settings.system_instruction,
            "start_tokens": settings.start_tokens,
        }
        if self.plugins.has("sampler", settings.backend):
            arguments = binding(settings.backend, settings.model_args, self.plugins)
            arguments.pop("pretrained", None)
            expected["arguments"] = _with_files(arguments, sampler.get("arguments"))
        yield from unequal(self._where, sampler, expected, "the recipe has")
        source = self.facts.get("source") or self.manifest["source"]
        model = sampler["model"]
        yield from _compare_weights(self._where, model, source.get("weights_sha256"))
        if "files" not in model:
            keys = SAID_OF_MODELS if "source" in self.facts else ("weights_sha256", "start_ids")
            said = {key: source[key] for key in keys if key in source}
            name = [
                str(settings.model_args.get(key)) for key in ("pretrained", "model", "revision")
            ]
            yield from unequal(self._where, model, {"name": name, **said}, "the run has")
        yield from self._check_adapter(sampler["adapter"])

    def _check_adapter(self, recorded: Mapping[str, Any] | None) -> Iterator[str]:
        """Check that the model has the arm's own adapter, or none for a split."""
        arm, place = self._arm, layout.read(self.relative)
        if arm is None or arm.condition == SOURCE:
            if recorded is not None:
                yield f"{self._where}: names an adapter, but is of the source model"
            return
        if recorded is None:
            yield f"{self._where}: names no adapter"
            return
        if recorded.get("arm", arm.name) != arm.name:
            yield f"{self._where}: adapter is that of {recorded['arm']}"
        said = self.facts.get("adapter")
        if said and "weights" in recorded and said["weights_sha256"] != recorded["weights"]:
            yield f"{self._where}: adapter differs from the one that the sampler reported"
        folder = self.run.path / layout.adapter(arm)
        if place is not None and not place.of and "weights" in recorded and folder.is_dir():
            given = {"weights": weights_hash(folder)}  # its config is compared with the settings
            says = f"{layout.adapter(arm)} has"
            yield from unequal(f"{self._where}, adapter", recorded, given, says)

    def _check_verifier(self, verifier: Mapping[str, Any]) -> Iterator[str]:
        task = task_of(self.manifest, self.split)
        expected = {
            "name": task["verifier"],
            "parameters": _with_files(task["verifier_params"], verifier.get("parameters")),
            "describes": self.facts.get("judged_by"),
        }
        yield from unequal(f"{self._where}, verifier", verifier, expected, "the run has")

    def _check_samples(self) -> Iterator[str]:
        """Check that every response has its stream's seed, and that no sample is missing."""
        search, streams = self.run.recipe.search, self.streams()
        wanted = None
        if self._arm is None and self.split != CALIBRATION and not stops(search, self.split):
            wanted = [GREEDY, *range(search.k)]
        for problem_id, judged in read_judged(self.run.path / self.relative):
            indices = [of.response.index for of in judged]
            if wanted is not None and indices != wanted:
                yield f"{self.relative}: problem {problem_id} has samples other than 0 to K - 1"
                return
            for of in judged:
                attempt, index = len(of.response.attempts) + 1, of.response.index
                (seed,) = streams.seeds_of(problem_id, attempt, [index])
                if of.response.seed != seed:
                    yield (
                        f"{self.relative}: problem {problem_id}, index {index} has the seed "
                        f"{of.response.seed}, but its random stream gives {seed}"
                    )
                    return


def distinct(contents: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Remove contents that repeat an earlier one, such as those of further sample blocks."""
    found: list[dict[str, Any]] = []
    for content in contents:
        if content not in found:
            found.append(content)
    return found


def _compare_weights(where: str, model: Mapping[str, Any], weights: str | None) -> Iterator[str]:
    """Compare a described model with the recorded hash of its weights."""
    recorded = model.get("weights_sha256")
    if "files" in model:
        digest = hashlib.sha256()  # as ``weights_hash`` computes it
        for name, sha256 in sorted(model["files"].items()):
            if any(Path(name).match(pattern) for pattern in WEIGHTS):
                digest.update(f"{name} {sha256}\n".encode())
        recorded = digest.hexdigest()
    if weights is not None and recorded != weights:
        yield f"{where}: has a model with the weights {recorded}, but the run has {weights}"


def _with_files(given: Any, recorded: Any) -> Any:
    """Describe a setting as in keys, with the recorded hashes instead of file names."""
    if isinstance(given, Mapping):
        known = recorded if isinstance(recorded, Mapping) else {}
        return {key: _with_files(value, known.get(key)) for key, value in given.items()}
    if isinstance(given, list | tuple):
        items = recorded if isinstance(recorded, list) else []
        return [
            _with_files(value, items[at] if at < len(items) else None)
            for at, value in enumerate(given)
        ]
    is_hash = isinstance(recorded, Mapping) and recorded.keys() in ({"file"}, {"folder"})
    return recorded if isinstance(given, str) and is_hash else given


def _differing(before: Any, value: Any) -> str:
    """Describe the difference of two values; of two mappings only the differing entries."""
    if isinstance(before, Mapping) and isinstance(value, Mapping):
        keys = sorted(key for key in {*before, *value} if before.get(key) != value.get(key))
        return ", ".join(f"{key} {before.get(key)} and {value.get(key)}" for key in keys)
    return f"{before} and {value}"
