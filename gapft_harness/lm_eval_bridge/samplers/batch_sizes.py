"""Halve the number of responses that are generated at once when memory runs out."""

from __future__ import annotations

from collections.abc import Callable

from accelerate.utils.memory import clear_device_cache

from gapft_harness.core.errors import GapftError, is_out_of_memory, summarize_error
from gapft_harness.hooks.protocols import ReportGeneration


def generate_in_batches(
    generate: Callable[[int], object], size: int, report: ReportGeneration
) -> int:
    """Call ``generate`` with a batch size, and with half of it whenever memory runs out.

    Args:
        generate: generates with a batch size; must keep finished rows between calls.
        size: the first batch size. The batch size changes results only by rounding.
        report: gets a note when the size is reduced.

    Returns:
        The batch size that memory was enough for.

    Raises:
        GapftError: memory is too small for a single response.
    """
    while True:
        try:
            generate(size)
            return size
        except (RuntimeError, MemoryError) as error:
            if not is_out_of_memory(error):
                raise
            if size == 1:
                raise GapftError(
                    "too little memory to generate a single response "
                    f"({summarize_error(error)}); free memory, or use a smaller model or "
                    "dtype, a lower search.max_gen_toks or fewer executor.workers"
                ) from error
        clear_device_cache(garbage_collection=True)
        size //= 2
        report(
            0,
            0,
            f"memory ran out with batch size {2 * size}; continuing with {size} "
            "(model.args.batch_size)",
        )
