"""The output of a step for fixed inputs changes only with the step's version.

If one of these tests fails and the change is intended: raise the step's version (for tables, the
format), so that stored results are not mistaken for the new output, and record the new digest.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from gapft_harness.core.identities import content_hash
from gapft_harness.core.records import Arm, Decoding, Problem
from gapft_harness.core.streams import SampleStreams
from gapft_harness.hooks.manager import load_plugins
from gapft_harness.recipe.reading import check_recipe
from gapft_harness.run_directory.manifest import FORMAT
from gapft_harness.stages.generation import generation, verdicts
from gapft_harness.stages.generation.chunks import Chunk
from gapft_harness.stages.generation.stored_files import build_verdict_record
from gapft_harness.stages.search.states import write_split_states
from gapft_harness.stages.selection.choosing import build_training_set
from gapft_harness.stages.train import stored
from gapft_harness.store.store import Store
from gapft_harness.training.ledger import compute_learning_rate, hash_sequences
from gapft_harness.training.plan import build_sequences, plan_steps
from gapft_harness.verification.judging import judge_unique
from tests.pools import build_pool
from tests.test_states import OUTCOMES, write_searched_run

#: The digest of a step's output, by step and version.
DIGESTS = {
    ("generate", 1): "81cf106bf8a216b4c2cb0f62d16c60f0f6c62ca86f64da51d702e57b12e051e4",
    ("judge", 1): "0cb0dd9833579d814c43cce23af33c8de68ca17abcb46debd6993e83f1ebb935",
    ("states", 6): "6844295eb4154579017465c959615b815073efcf81b004820d9b95babb96e7d8",
    ("select", 6): "571bee69e43f5112e86f31784c56aa3fc27216fd237d24a3da1c237c966a46b5",
    ("train", 1): "5612fd16431f2573cf6bd87d00f0613b01619253504a18eea5bcf0030be35596",
}

RECIPE = {
    "name": "r",
    "data": {"task": "t"},
    "model": {"args": {"pretrained": "none"}},
    "search": {"k": 11, "chunk": 2},
}


def list_requests(folder: Path) -> Any:
    """Return chunks with their file names and the seed of each sample."""
    search = check_recipe(RECIPE, "test").search
    problems = [Problem(f"p{i}", "?" * (i % 3), "a", {}) for i in range(5)]
    phases = generation.build_search_phases(Decoding(False, 12, ("\n",)), search)
    groups = {key: Store(folder).find_group("generate", 1, {"phase": key.name}) for key in phases}
    streams = SampleStreams(7, "search", "pool")
    return [
        [
            [problem.id for problem in chunk.members],
            [name for _, name in chunk.places.values()],
            [
                streams.derive_seeds(problem.id, attempt, phase.indices)
                for problem in chunk.members
                for phase in phases
                for attempt in (1, 2)
            ],
        ]
        for members in generation.divide_into_chunks(
            problems, generation.count_chunk_problems(search, phases)
        )
        for chunk in [Chunk.place_files(members, groups)]
    ]


def judge_responses(folder: Path) -> Any:
    """Judge right, wrong and unreadable responses with bundled verifiers."""
    cases = {
        "boxed_math": (["so \\boxed{1/2}", "\\boxed{0.5}", "\\boxed{2}", "half", ""], "\\frac12"),
        "option_letter": (["The answer is B.", "b", "A or B", "C", ""], "B"),
    }
    records = []
    for name, (responses, gold) in cases.items():
        pairs = judge_unique(
            load_plugins().create_verifier(name, {}), responses, [gold] * len(responses)
        )
        records.append(
            build_verdict_record("p", ((i, *pair) for i, pair in enumerate(pairs)), ("p",))
        )
    return records


def compute_states(folder: Path) -> Any:
    """Return the partition with the kept responses."""
    run = write_searched_run(folder / "run", "shortest", OUTCOMES)
    return [
        write_split_states(str(run.path), "pool"),
        pq.read_table(run.path / "pool/states.parquet").to_pylist(),
    ]


def select_examples(condition: str) -> Any:
    select, entry = load_plugins().find_selector(condition)
    return build_training_set(select, entry, build_pool(9, 9), 5, 3, Arm(condition, 13)).examples


def select_all(folder: Path) -> Any:
    """Return the selections of the paper's conditions."""
    conditions = ("gapft", "uniform", "replay", "all_verified")
    return {name: [asdict(example) for example in select_examples(name)] for name in conditions}


def plan_training(folder: Path) -> Any:
    """Return the hash of the sequences, their order and the learning rates."""
    settings = check_recipe(RECIPE, "test").training
    fitted = build_sequences(select_examples("uniform"), settings)
    table = plan_steps([sequence.slot for sequence in fitted], settings, 13)
    steps = len(table)
    rates = [f"{compute_learning_rate(settings, n + 1, steps):.9e}" for n in range(steps)]
    return [hash_sequences(fitted), table, rates]


@pytest.mark.parametrize(
    ("step", "version", "output"),
    [
        ("generate", generation.VERSION, list_requests),
        ("judge", verdicts.VERSION, judge_responses),
        ("states", FORMAT, compute_states),
        ("select", FORMAT, select_all),
        ("train", stored.VERSION, plan_training),
    ],
)
def test_step_output_matches_version(
    step: str, version: int, output: Callable[[Path], Any], tmp_path: Path
) -> None:
    assert content_hash(output(tmp_path)) == DIGESTS[step, version], (
        f"{step}: the output changed; raise its version and record the new digest"
    )
