"""Compare Pass@k before and after, with several samples of each document."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product

import numpy as np
from numpy.typing import NDArray

from gapft_harness.analysis.curves import CurveDifference, compare_curves
from gapft_harness.analysis.pass_at_k import list_reported_k
from gapft_harness.compare.samples import SampleCounts, SampleReader, refuse_same_log
from gapft_harness.core.errors import UserError
from gapft_harness.core.streams import Stream
from gapft_harness.verdicts.log_files import ModelRuns, find_models

#: Every k up to this number is computed; above it, powers of two.
_MAX_EVERY_K = 64


@dataclass(frozen=True, slots=True)
class Curves:
    """A model's curves with those before.

    Attributes:
        samples: number of samples per document and training seed.
        any_right: Pass@k: at least one of k samples passes.
        all_right: pass^k: all k samples pass.
        by_state: for each state before, the number of its documents and Pass@k on them.
        warnings: signs that the samples are not independent.
        alike: for each seed, the number of documents with identical texts in all samples.
    """

    samples: int
    any_right: CurveDifference
    all_right: CurveDifference
    by_state: dict[str, tuple[int, CurveDifference]] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    alike: tuple[int, ...] = ()


def compute_curves(
    reader: SampleReader,
    before: SampleCounts,
    after: Sequence[ModelRuns],
    states: NDArray[np.str_] | None,
    clusters: NDArray[np.int64] | None,
) -> dict[str, Curves]:
    """Compute each model's curves.

    Args:
        reader: reads the samples after.
        before: the samples before.
        after: by model, a run of samples for each training seed.
        states: shape (P,), the documents' states under the model before; None: unknown.
        clusters: shape (P,), see ``compare_curves``.

    Raises:
        UserError: a log has no outcomes, or its documents or numbers of samples differ.
    """
    curves_by_model = {}
    for model in after:
        runs = [reader.read([run], str(run), may_be_before=True) for run in model.runs]
        if reader.choice.tuned_samples:  # otherwise a note reports that the logs are the same
            for pair in product((path for run in runs for path in run.paths), before.paths):
                refuse_same_log(*pair)
        if len({run.k for run in runs}) > 1:
            raise UserError(
                f"{model.name}: found {', '.join(str(run.k) for run in runs)} samples per "
                "document; expected the same number for each seed"
            )
        curves_by_model[model.name] = _compute_model_curves(
            model.name, before, runs, states, clusters
        )
    return curves_by_model


def _compute_model_curves(
    name: str,
    before: SampleCounts,
    runs: Sequence[SampleCounts],
    states: NDArray[np.str_] | None,
    clusters: NDArray[np.int64] | None,
) -> Curves:
    after, k = np.stack([run.passing for run in runs]), runs[0].k
    most = min(before.k, k)
    ks = tuple(range(1, most + 1)) if most <= _MAX_EVERY_K else list_reported_k(most)

    def compare_members(
        members: NDArray[np.bool_], purpose: str, all_right: bool
    ) -> CurveDifference:
        member_clusters = None
        if clusters is not None:
            member_clusters = np.unique(clusters[members], return_inverse=True)[1]
        return compare_curves(
            *(before.passing[members], before.k, after[:, members], k, ks),
            clusters=member_clusters,
            all_right=all_right,
            stream=Stream(0, f"compare/curves/{name}/{purpose}"),
        )

    everything = np.ones(len(before.passing), dtype=np.bool_)
    by_state = {}
    for state in "GSU" if states is not None else "":
        members = np.asarray(states) == state
        if members.any():
            by_state[state] = int(members.sum()), compare_members(members, state, False)
    return Curves(
        k,
        compare_members(everything, "any", False),
        compare_members(everything, "all", True),
        by_state,
        tuple(run.warning for run in runs if run.warning),
        tuple(run.alike for run in runs),
    )


def tuned_models(arguments: Sequence[str], names: Sequence[str]) -> list[ModelRuns]:
    """Return the models of ``--tuned-samples``; with one AFTER, all are its training seeds.

    Raises:
        UserError: the names differ from those of AFTER.
    """
    models_by_name: Mapping[str, ModelRuns] = {
        model.name: model for model in find_models(arguments, (), seeds=False)
    }
    if len(names) == 1:
        runs = tuple(run for model in models_by_name.values() for run in model.runs)
        return [ModelRuns(names[0], runs)]
    if {*models_by_name} != {*names}:
        raise UserError(
            f"--tuned-samples: found {', '.join(models_by_name)}; expected one for each AFTER with "
            f"the same name: {', '.join(f'{name}=LOGS' for name in names)}"
        )
    return [models_by_name[name] for name in names]
