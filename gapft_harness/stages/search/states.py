"""Evidence states: G solved by the deployment decode, S recovered by search, U missed by search.

Read a split's responses; write ``states/SPLIT.parquet`` (Section 3.2, Equations 3 to 6). States can
also be computed from a *window* of the samples of a search: ``states/SPLIT/OFFSET-K.parquet``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from reprlib import repr as short
from typing import Any

from gapft_harness.core.errors import UserError
from gapft_harness.core.records import GREEDY, Response, classify_state
from gapft_harness.hooks.manager import load_plugins
from gapft_harness.hooks.registration import Registration
from gapft_harness.run_directory.directory import require_consistent
from gapft_harness.run_directory.tables import (
    JudgedResponse,
    ProblemState,
    read_judged,
    write_states,
)


@dataclass(frozen=True, slots=True, order=True)
class Window:
    """A range of a search's samples that states are computed from.

    Adjacent windows of one search are independent sample sets, as in Appendix "Stability Across
    Independent Source Samples"; windows with the same offset are nested search budgets.

    Attributes:
        offset: number of the first sample, from 0.
        k: number of samples, at least 1.

    Raises:
        UserError: the values are out of range.
    """

    offset: int
    k: int

    def __post_init__(self) -> None:
        """Check the range."""
        if self.offset < 0 or self.k < 1:
            raise UserError(
                f"window {self.offset}-{self.k}: expected OFFSET-K with the first sample's number "
                "(from 0) and the number of samples (at least 1)"
            )

    def __str__(self) -> str:
        return f"{self.offset}-{self.k}"

    @property
    def range_text(self) -> str:
        """The range counted from 1, as ``1–8``."""
        return f"{self.offset + 1}–{self.end}"

    @property
    def end(self) -> int:
        """The number after that of the last sample."""
        return self.offset + self.k


def compute_states(
    output: Path,
    responses: Path,
    *,
    offset: int,
    k: int,
    keep: str,
    drawn: int,
    plugin_files: Sequence[str] = (),
) -> dict[str, Any]:
    """Write the states from some samples of a split: the function of a step.

    Args:
        output: the table to write.
        responses: the split's responses.
        offset: the first sample's number.
        k: the number of samples.
        keep: the name of the response rule.
        drawn: the number of samples that the search drew.
        plugin_files: files given by ``--plugin``.

    Returns:
        The facts ``states``, the counts of G, S and U.

    Raises:
        UserError: the search has not drawn these samples.
        PluginError: the response rule failed, or chose something other than a passing sample.
    """
    rule = load_plugins(plugin_files).get("response rule", keep)
    window = Window(offset, k)
    if window.end > drawn:
        raise UserError(
            f"{responses.parent.name}: samples {window.range_text} are not available: the search "
            f"drew {drawn} (search.k); use samples within them, or search with a larger search.k"
        )
    counts: Counter[str] = Counter({"G": 0, "S": 0, "U": 0})

    def count_states() -> Iterator[ProblemState]:
        for problem_id, judged in read_judged(responses):
            state = compute_state(problem_id, judged, drawn, rule, window)
            counts[state.state] += 1
            yield state

    write_states(output, count_states())
    return {"states": dict(counts)}


def compute_state(
    problem_id: str,
    judged: Sequence[JudgedResponse],
    drawn: int,
    rule: Registration,
    window: Window,
) -> ProblemState:
    """Compute one problem's state and choose the response that is kept.

    Args:
        problem_id: the problem.
        judged: its deployment response and samples with their verdicts, in order.
        drawn: the number of samples that the search drew.
        rule: the response rule.
        window: the samples to use.

    Raises:
        PluginError: the rule failed, or chose something other than a passing sample.
    """
    indices = [j.response.index for j in judged]
    require_consistent(
        indices == [GREEDY, *range(drawn)],
        f"problem {problem_id}: expected the deployment response {GREEDY} and samples 0 to "
        f"{drawn - 1}, found {indices}",
    )
    deployed, *samples = judged
    samples = samples[window.offset : window.end]
    passing = [j.response for j in samples if j.verdict.passed]
    state = classify_state(deployed.verdict.passed, [j.verdict.passed for j in samples])
    kept_index: int | None = None
    if state == "G":
        kept_index = GREEDY
    elif state == "S":
        kept_index = _choose_response(rule, passing).index
    first_success = passing[0].index if passing else None
    return ProblemState(problem_id, state, len(samples), len(passing), first_success, kept_index)


def _choose_response(rule: Registration, passing: Sequence[Response]) -> Response:
    with rule.wrap_errors():
        response = rule.value(list(passing))
    if not isinstance(response, Response) or response not in passing:
        raise rule.contract_error(
            f"returned a response to problem {passing[0].problem_id} that is not one of its "
            f"{len(passing)} passing samples: {short(response)}"
        )
    return response
