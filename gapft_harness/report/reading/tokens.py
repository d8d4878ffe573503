"""Count the tokens of responses and prompts in sealed tables."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from gapft_harness.report.reading.columns import find_deployed


@dataclass(frozen=True, slots=True)
class GeneratedTokens:
    """Tokens that were generated for a split, or by an arm.

    Attributes:
        deployed: tokens of deployment decodes, including earlier attempts of an episode.
        samples: tokens of samples, likewise.
        deployed_responses: the number of deployment decodes.
        sample_responses: the number of samples.
    """

    deployed: int
    samples: int
    deployed_responses: int
    sample_responses: int

    @property
    def total(self) -> int:
        """Tokens of deployment decodes and samples."""
        return self.deployed + self.samples

    @property
    def mean_decode(self) -> float:
        """Mean tokens of a deployment decode."""
        return self.deployed / self.deployed_responses if self.deployed_responses else 0.0

    @property
    def mean_sample(self) -> float:
        """Mean tokens of a sample."""
        return self.samples / self.sample_responses if self.sample_responses else 0.0


def count_generated(table: Path) -> GeneratedTokens | None:
    """Count the tokens of a table of responses; return None where it has no token ids."""
    index, tokens = read_response_tokens(table)
    deployed = find_deployed(index)
    generated = GeneratedTokens(
        int(tokens[deployed].sum()),
        int(tokens[~deployed].sum()),
        int(deployed.sum()),
        int((~deployed).sum()),
    )
    return generated if generated.total else None


def read_response_tokens(path: Path) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Read the index and the generated tokens of each response, in the table's order."""
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    indices, counts = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
    with pq.ParquetFile(path) as file:
        for batch in file.iter_batches(columns=["index", "token_ids", "attempts"]):
            lengths = _measure_lengths(pc, batch.column("token_ids"))
            attempts = batch.column("attempts")
            earlier = pc.list_flatten(attempts)
            if len(earlier):
                attempt_lengths = _measure_lengths(pc, pc.struct_field(earlier, "token_ids"))
                np.add.at(lengths, pc.list_parent_indices(attempts).to_numpy(), attempt_lengths)
            indices.append(batch.column("index").cast(pa.int64()).to_numpy())
            counts.append(lengths)
    return np.concatenate(indices), np.concatenate(counts)


def read_prompt_tokens(path: Path) -> NDArray[np.int64]:
    """Count the tokens of each problem's prompt, in the table's order."""
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    return _measure_lengths(pc, pq.read_table(path, columns=["prompt_ids"])["prompt_ids"])


def _measure_lengths(pc: object, lists: object) -> NDArray[np.int64]:
    """Return the lengths of lists; 0 for a missing list."""
    import pyarrow as pa

    lengths = pc.fill_null(pc.list_value_length(lists), 0).cast(pa.int64())  # type: ignore[attr-defined]
    return np.array(
        lengths.to_numpy(zero_copy_only=False) if isinstance(lengths, pa.Array) else lengths
    )
