"""``gapft verify``: whether the arms of a run differ in nothing but what its recipe declares.

Everything is computed again from the sealed tables: states from verdicts, selections from states,
plans, weights and budgets from selections (Equations 6 and 7). Nothing that was written about a
run is believed. Reads; changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from gapft_harness.budgets import enforce_tokens
from gapft_harness.early_stop import stops
from gapft_harness.errors import GapftError
from gapft_harness.files import sha256
from gapft_harness.generation import decoding_from
from gapft_harness.plugin_manager import Plugins, load_plugins
from gapft_harness.recipe_file import check_recipe
from gapft_harness.records import Arm, Budget, Evidence, Example
from gapft_harness.run_directory import CALIBRATION, SPLITS, RunDirectory
from gapft_harness.scale import FOLDER
from gapft_harness.selection import arms, fill, has_own_budget, make_pool, to_example
from gapft_harness.shards import of_merged_shard
from gapft_harness.states import state_row
from gapft_harness.tables import read_evidence, read_examples, read_judged, read_states
from gapft_harness.training.plan import budget
from gapft_harness.verify_scaling import check_calibration, check_scaled
from gapft_harness.verify_training import check_adapter, check_alike


@dataclass(slots=True)
class Findings:
    """What was verified, and what was not as it must be.

    Attributes:
        checked: sentences.
        differences: sentences; empty if the run holds.
        missing: what the run has not come to yet.
    """

    checked: list[str] = field(default_factory=list)
    differences: list[str] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)


def verify(path: Path, plugin_files: Sequence[str] = ()) -> Findings:
    """Verifies a run directory as far as the run has come.

    Args:
        path: the run directory.
        plugin_files: files given by ``--plugin``, those that the run was made with.

    Raises:
        UserError: it is no run directory, or a plugin of the recipe is not there.
    """
    run = RunDirectory.open(path)
    plugins = load_plugins(plugin_files)
    manifest = run.manifest()
    found = Findings()
    _files(run, manifest, found)
    for split in SPLITS:
        _gather(found, f"{split}/states.parquet", partial(_states, run, manifest, plugins, split))
    _selections(run, manifest, plugins, found)
    return found


def _files(run: RunDirectory, manifest: dict[str, Any], found: Findings) -> None:
    """Sealed files have the hashes that the manifest recorded; the recipe is the manifest's."""
    there = 0
    for relative, recorded in manifest["files"].items():
        path = run.path / relative
        if not path.exists() and of_merged_shard(relative, manifest):
            continue
        there += 1
        if not path.exists():
            found.differences.append(f"{relative}: is sealed in the manifest and not there")
        elif sha256(path) != recorded:
            found.differences.append(f"{relative}: was changed after it was sealed")
    if check_recipe(manifest["recipe"], "manifest.json") != run.recipe:
        found.differences.append("recipe.yaml: is not the recipe of the manifest")
    found.checked.append(f"{there} sealed files have their hashes")


def _states(
    run: RunDirectory, manifest: dict[str, Any], plugins: Plugins, split: str
) -> Iterable[str]:
    """A split's states and kept responses follow from its verdicts, by the frozen rule."""
    folder, keep = run.path / split, manifest["task"].get("keep")
    if not (folder / "states.parquet").exists():
        return
    with plugins.blaming("response rule", keep) as entry:
        search = run.recipe.search
        stop = stops(search, split)
        judged = read_judged(folder / "responses.parquet")
        for (problem_id, of_problem), stated in zip(
            judged, read_states(folder / "states.parquet"), strict=True
        ):
            row = state_row(problem_id, of_problem, search.k, stop, entry.value, keep)
            for key, value in row.items():
                if stated[key] != value:
                    yield (
                        f"{split}/states.parquet: problem {problem_id} has {key} {stated[key]!r}, "
                        f"its verdicts give {value!r}"
                    )


def _selections(
    run: RunDirectory, manifest: dict[str, Any], plugins: Plugins, found: Findings
) -> None:
    """Every arm's examples, budget and adapter; then what arms must have in common."""
    if not manifest.get("n"):
        found.missing.append("nothing is selected")
        return
    limit = decoding_from(manifest["task"]).max_gen_toks
    evidence = read_evidence(run.path / "pool", run.recipe.evidence.context, limit)
    examples: dict[Arm, list[Example]] = {}
    for arm in arms(run.recipe):
        relative = f"selections/{arm.name}.parquet"

        def read(arm: Arm = arm, relative: str = relative) -> Iterable[str]:
            examples[arm] = read_examples(run.path / relative)
            yield from _evidence(arm, examples[arm], evidence, plugins)
            yield from _chosen_again(run, arm, examples[arm], evidence, plugins, manifest["n"])

        _gather(found, relative, read)
    budgets: dict[Arm, Budget] = {}
    for arm, chosen in examples.items():

        def count(arm: Arm = arm, chosen: Sequence[Example] = chosen) -> Iterable[str]:
            budgets[arm] = budget(chosen, run.recipe.training)
            yield from _budget(arm, budgets[arm], manifest, plugins)

        _gather(found, f"budget of {arm.name}", count)
    matched = {
        arm: b
        for arm, b in budgets.items()
        if not has_own_budget(plugins.get("selector", arm.condition))
    }
    found.differences += _matched(matched)
    _gather(found, "supervised tokens", lambda: _tolerated(matched, run))
    found.differences += _replay({arm: examples[arm] for arm in matched}, run.recipe.budget.replay)
    found.checked.append(
        f"{len(examples)} selections hold the evidence that their conditions choose, each a "
        "response that passed"
    )
    if matched:
        first = next(iter(matched.values()))
        found.checked.append(
            f"{len(matched)} matched arms have n = {first.n}, N = {first.exposures}, "
            f"J = {first.steps}"
        )
    _adapters(run, manifest, examples, found)


def _adapters(
    run: RunDirectory, manifest: dict[str, Any], examples: dict[Arm, list[Example]], found: Findings
) -> None:
    trained = [arm for arm in examples if (run.path / "adapters" / arm.name).is_dir()]
    for arm in trained:
        _gather(
            found,
            f"adapters/{arm.name}",
            partial(check_adapter, run, arm, examples[arm], manifest),
        )
    _gather(found, "adapters", lambda: check_alike(run, trained))
    found.missing += [f"{arm.name} is not trained" for arm in examples if arm not in trained]
    if trained:
        found.checked.append(
            f"{len(trained)} adapters were trained on the steps, tokens, weights and learning "
            "rates that their selections and the recipe give, from one base model"
        )
    _scaling(run, manifest, trained, found)


def _scaling(
    run: RunDirectory, manifest: dict[str, Any], trained: Sequence[Arm], found: Findings
) -> None:
    """The calibration problems, and every scale that was chosen by them."""
    settings = run.recipe.scaling
    if settings is None:
        return
    if not (run.path / CALIBRATION / "problems.parquet").exists():
        found.missing.append("the calibration split is not searched")
        return
    _gather(found, "calibration/problems.parquet", lambda: check_calibration(run, manifest))
    scaled = [arm for arm in trained if (run.path / FOLDER / arm.name).is_dir()]
    for arm in scaled:
        check = partial(check_scaled, run, arm, settings, manifest)
        _gather(found, f"{FOLDER}/{arm.name}", check)
    found.missing += [f"{arm.name} has no scale" for arm in trained if arm not in scaled]
    if scaled:
        found.checked.append(
            f"{len(scaled)} chosen scale{'s' * (len(scaled) > 1)} computed again from the "
            "calibration split's decisions, and so the scaled weights from the trained ones"
        )


def _evidence(
    arm: Arm, examples: Sequence[Example], evidence: Sequence[Evidence], plugins: Plugins
) -> Iterable[str]:
    """Every example is exactly what the states table keeps for its problem."""
    known = {e.problem_id: e for e in evidence}
    gold = plugins.get("selector", arm.condition).options.get("gold", False)
    for slot, example in enumerate(examples):
        who = f"selections/{arm.name}.parquet: slot {slot}, problem {example.problem_id}"
        kept = known.get(example.problem_id)
        if kept is None:
            yield f"{who}: is no problem of the pool"
        elif gold:
            continue
        elif kept.response is None:
            yield f"{who}: search missed it, so no response of it passed"
        elif example != (right := to_example(kept)):
            a, b = asdict(example), asdict(right)
            keys = ", ".join(key for key in a if a[key] != b[key])
            yield f"{who}: is not the evidence that the states table keeps; differing: {keys}"


def _chosen_again(
    run: RunDirectory,
    arm: Arm,
    examples: Sequence[Example],
    evidence: Sequence[Evidence],
    plugins: Plugins,
    n: int,
) -> Iterable[str]:
    """The condition's selector, run again, chooses the same examples in the same order."""
    selector, entry = plugins.selector(arm.condition)
    chosen = fill(selector, entry, make_pool(evidence), n, run.recipe.budget.replay, arm)
    right = [to_example(e) for e in chosen]
    if len(right) != len(examples):
        yield (
            f"selections/{arm.name}.parquet: holds {len(examples)} examples, its selector "
            f"chooses {len(right)}"
        )
        return
    for slot, (one, other) in enumerate(zip(examples, right, strict=True)):
        if one.problem_id != other.problem_id:
            yield (
                f"selections/{arm.name}.parquet: slot {slot} holds problem {one.problem_id}, its "
                f"selector chooses {other.problem_id}"
            )


def _budget(arm: Arm, counted: Budget, manifest: dict[str, Any], plugins: Plugins) -> Iterable[str]:
    own = has_own_budget(plugins.get("selector", arm.condition))
    expected = {**asdict(counted), "matched": not own}
    recorded = manifest["budgets"].get(arm.name, {})
    for key, value in expected.items():
        if recorded.get(key) != value:
            yield (
                f"manifest.json: the budget of {arm.name} has {key} = {recorded.get(key)}, its "
                f"selection gives {value}"
            )


def _matched(budgets: dict[Arm, Budget]) -> Iterable[str]:
    first: Arm | None = None
    for arm, found in budgets.items():
        first = first or arm
        for key in ("n", "repetitions", "exposures", "steps"):
            a, b = getattr(budgets[first], key), getattr(found, key)
            if a != b:
                yield f"matched arms {first.name} and {arm.name} differ in {key}: {a} and {b}"


def _tolerated(budgets: dict[Arm, Budget], run: RunDirectory) -> Iterable[str]:
    enforce_tokens(budgets, run.recipe.budget.token_tolerance)
    return ()


def _replay(examples: dict[Arm, list[Example]], replay: int) -> Iterable[str]:
    """The last g slots of a seed's matched arms are the same examples."""
    first: dict[int, Arm] = {}
    for arm, chosen in examples.items():
        other = first.setdefault(arm.seed, arm)
        if replay and chosen[-replay:] != examples[other][-replay:]:
            yield f"arms {other.name} and {arm.name} replay other examples ({replay} slots)"


def _gather(found: Findings, what: str, check: Callable[[], Iterable[str]]) -> None:
    """Takes in a check's differences; a table or rule that breaks is one, not the end."""
    try:
        found.differences += check()
    except GapftError as error:
        found.differences.append(f"{what}: {error}")
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        found.differences.append(
            f"{what}: cannot be read ({type(error).__name__}: {' '.join(str(error).split())})"
        )
