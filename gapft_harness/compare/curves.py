"""Compare Pass@k before and after, with several samples of each document."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product

import numpy as np
from numpy.typing import NDArray

from gapft_harness.analysis.curves import CurveDifference, compare_curves
from gapft_harness.analysis.pass_at_k import reported_k
from gapft_harness.compare.samples import Sampled, SampleReader, refuse_same
from gapft_harness.core.errors import UserError
from gapft_harness.core.streams import Stream
from gapft_harness.verdicts.places import Model, models

#: Every k up to this number is computed; above it, powers of two.
_EVERY = 64


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


def curves(
    reader: SampleReader,
    before: Sampled,
    after: Sequence[Model],
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
    found = {}
    for model in after:
        runs = [reader.read([run], str(run), own=True) for run in model.runs]
        if reader.choice.tuned_samples:  # otherwise a note reports that the logs are the same
            for pair in product((path for run in runs for path in run.paths), before.paths):
                refuse_same(*pair)
        if len({run.k for run in runs}) > 1:
            raise UserError(
                f"{model.name}: found {', '.join(str(run.k) for run in runs)} samples per "
                "document; expected the same number for each seed"
            )
        found[model.name] = _of_model(model.name, before, runs, states, clusters)
    return found


def _of_model(
    name: str,
    before: Sampled,
    runs: Sequence[Sampled],
    states: NDArray[np.str_] | None,
    clusters: NDArray[np.int64] | None,
) -> Curves:
    after, k = np.stack([run.passing for run in runs]), runs[0].k
    most = min(before.k, k)
    ks = tuple(range(1, most + 1)) if most <= _EVERY else reported_k(most)

    def compared(members: NDArray[np.bool_], purpose: str, all_right: bool) -> CurveDifference:
        own = None
        if clusters is not None:
            own = np.unique(clusters[members], return_inverse=True)[1]
        return compare_curves(
            *(before.passing[members], before.k, after[:, members], k, ks),
            clusters=own,
            all_right=all_right,
            stream=Stream(0, f"compare/curves/{name}/{purpose}"),
        )

    everything = np.ones(len(before.passing), dtype=np.bool_)
    by_state = {}
    for state in "GSU" if states is not None else "":
        members = np.asarray(states) == state
        if members.any():
            by_state[state] = int(members.sum()), compared(members, state, False)
    return Curves(
        k,
        compared(everything, "any", False),
        compared(everything, "all", True),
        by_state,
        tuple(run.warning for run in runs if run.warning),
        tuple(run.alike for run in runs),
    )


def tuned_models(arguments: Sequence[str], names: Sequence[str]) -> list[Model]:
    """Return the models of ``--tuned-samples``; with one AFTER, all are its training seeds.

    Raises:
        UserError: the names differ from those of AFTER.
    """
    named: Mapping[str, Model] = {model.name: model for model in models(arguments, (), seeds=False)}
    if len(names) == 1:
        runs = tuple(run for model in named.values() for run in model.runs)
        return [Model(names[0], runs)]
    if {*named} != {*names}:
        raise UserError(
            f"--tuned-samples: found {', '.join(named)}; expected one for each AFTER with the "
            f"same name: {', '.join(f'{name}=LOGS' for name in names)}"
        )
    return [named[name] for name in names]
