"""Choose how many responses are generated at once, from the recipe or from free memory."""

from __future__ import annotations

import gc
from collections.abc import Callable

import torch
from accelerate.utils.memory import should_reduce_batch_size

from gapft_harness.core.errors import GapftError
from gapft_harness.core.memory import measure_free_memory
from gapft_harness.hooks.protocols import ReportGeneration

#: The share of free memory that ``auto`` uses for caches.
_MEMORY_SHARE = 0.5
#: Maximum batch size under ``auto``.
_MAX_ROWS = 128
#: Maximum number of caches of a row: its prompt's, its own, and a copy when rows leave.
_CACHES_PER_ROW = 3


class BatchSizes:
    """The batch size: a number or ``auto``; it is halved when memory runs out.

    With ``auto``, the key-value caches of prompts and responses at full length take half of the
    free memory, divided by the number of processes; at most 128. The batch size changes results
    only by rounding.
    """

    def __init__(self, batch_size: str, device: torch.device, processes: int) -> None:
        """Store the requested size.

        Args:
            batch_size: ``model.args.batch_size``: a whole number, or ``auto``.
            device: the device whose memory counts.
            processes: number of processes that share this memory.
        """
        self._limit = None if batch_size.startswith("auto") else int(batch_size)
        self._is_auto = self._limit is None
        self._device, self._processes = device, processes

    def run_with_retries(
        self,
        generate: Callable[[int], object],
        tokens: int,
        bytes_per_token: int,
        rows: int,
        report: ReportGeneration,
    ) -> None:
        """Call ``generate`` with a batch size, and with half of it whenever memory runs out.

        Args:
            generate: generates with a batch size; must keep finished rows between calls.
            tokens: length of the longest prompt and response together, in tokens.
            bytes_per_token: size of a row's cache for one token.
            rows: number of rows, which limits the batch size.
            report: gets a note when the size is reduced.

        Raises:
            GapftError: memory is too small for a single response.
        """
        size = max(1, min(self._choose_size(tokens, bytes_per_token), rows))
        while True:
            try:
                generate(size)
                return
            except (RuntimeError, MemoryError) as error:
                if not is_out_of_memory(error):
                    raise
                if size == 1:
                    raise GapftError(
                        f"{self._device}: too little memory to generate a single response "
                        f"({str(error).splitlines()[0][:200]}); free memory, or use a smaller "
                        "model or dtype, a lower search.max_gen_toks or fewer executor.workers"
                    ) from error
            release_memory()
            self._limit = size = size // 2
            report(
                0,
                0,
                f"memory ran out with batch size {2 * size}; continuing with {size} "
                "(model.args.batch_size)",
            )

    def _choose_size(self, tokens: int, bytes_per_token: int) -> int:
        if not self._is_auto or not bytes_per_token:
            return self._limit or _MAX_ROWS
        free = measure_free_memory(self._device) / self._processes * _MEMORY_SHARE
        fitting = int(free // (_CACHES_PER_ROW * tokens * bytes_per_token))
        return min(fitting, _MAX_ROWS, self._limit or _MAX_ROWS)


def is_out_of_memory(error: BaseException) -> bool:
    """Return whether an error means that memory ran out, on a GPU or on the CPU."""
    return isinstance(error, MemoryError | torch.OutOfMemoryError) or (
        isinstance(error, Exception) and bool(should_reduce_batch_size(error))
    )


def release_memory() -> None:
    """Collect unreferenced objects, and release cached GPU memory."""
    gc.collect()
    torch.cuda.empty_cache()  # no effect without CUDA
