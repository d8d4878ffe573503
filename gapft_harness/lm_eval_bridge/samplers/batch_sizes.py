"""How many responses are generated at once, by the recipe or by the memory that is free."""

from __future__ import annotations

import gc
from collections.abc import Callable

import torch
from accelerate.utils.memory import should_reduce_batch_size

from gapft_harness.core.errors import GapftError
from gapft_harness.core.memory import free_memory
from gapft_harness.hooks.protocols import ReportGeneration

#: Of the memory that is free, the share that ``auto`` gives to caches.
_SHARE = 0.5
#: Most responses at once under ``auto``.
_MOST = 128
#: Caches that a row has at most at a time: its prompt's, its own, and a copy when rows leave.
_CACHES = 3


class BatchSizes:
    """The size of batches: a number, or ``auto``; smaller once memory has run out.

    ``auto`` is at most 128, and so many that the key-value caches of prompts and responses at
    their full length take half of the memory that is free, divided among the processes that share
    it. What is generated depends on it by rounding alone.
    """

    def __init__(self, asked: str, device: torch.device, processes: int) -> None:
        """Take down what was asked for.

        Args:
            asked: ``model.args.batch_size``: a whole number, or ``auto``.
            device: whose memory counts.
            processes: how many processes share that memory.
        """
        self._most = None if asked.startswith("auto") else int(asked)
        self._is_auto = self._most is None
        self._device, self._processes = device, processes

    def run(
        self,
        generate: Callable[[int], object],
        tokens: int,
        bytes_per_token: int,
        rows: int,
        report: ReportGeneration,
    ) -> None:
        """Call ``generate`` with a size, and with half of it each time that memory runs out.

        Args:
            generate: keeps what is finished when it is called again.
            tokens: of the longest prompt and response together.
            bytes_per_token: of a row's cache.
            rows: more than so many are never generated at once.

        Raises:
            GapftError: memory is too small for a single response.
        """
        size = max(1, min(self._size(tokens, bytes_per_token), rows))
        while True:
            try:
                generate(size)
                return
            except (RuntimeError, MemoryError) as error:
                if not is_out_of_memory(error):
                    raise
                if size == 1:
                    raise GapftError(
                        f"{self._device} has too little memory to generate a single response "
                        f"({str(error).splitlines()[0][:200]}); free memory, or use a smaller "
                        "model or dtype, a shorter search.max_gen_toks or fewer executor.workers"
                    ) from error
            give_back()
            self._most = size = size // 2
            report(
                0,
                0,
                f"memory ran out with {2 * size} responses at once; going on with {size} "
                "(model.args.batch_size)",
            )

    def _size(self, tokens: int, bytes_per_token: int) -> int:
        if not self._is_auto or not bytes_per_token:
            return self._most or _MOST
        free = free_memory(self._device) / self._processes * _SHARE
        fitting = int(free // (_CACHES * tokens * bytes_per_token))
        return min(fitting, _MOST, self._most or _MOST)


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error says that memory ran out, on a GPU or on the CPU."""
    return isinstance(error, MemoryError | torch.OutOfMemoryError) or (
        isinstance(error, Exception) and bool(should_reduce_batch_size(error))
    )


def give_back() -> None:
    """Collect what nobody refers to, and give a GPU's memory back."""
    gc.collect()
    torch.cuda.empty_cache()  # nothing where CUDA is not in use
