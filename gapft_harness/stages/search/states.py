"""Evidence states: G solved in one decode, S recovered by search, U missed by search.

Reads a split's responses; writes ``SPLIT/states.parquet`` (Section 3.2, Equations 3 to 6).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from reprlib import repr as short
from typing import Any

from gapft_harness.core.records import GREEDY, Response, State
from gapft_harness.hooks.manager import Registered, load_plugins
from gapft_harness.run_directory import layout
from gapft_harness.run_directory.directory import RunDirectory, require
from gapft_harness.run_directory.tables import Judged, read_judged
from gapft_harness.run_directory.tables.states import ProblemState, write_states
from gapft_harness.stages.generation.early_stop import stops


def state_of(greedy_passed: bool, samples_passed: Sequence[bool], k: int | None = None) -> State:
    """The state of one problem at search budget K.

    Args:
        greedy_passed: V(x, d_src(x)).
        samples_passed: V(x, y_1), ..., in order of sample number.
        k: use the first k samples as the nested budget; default all.
    """
    if greedy_passed:
        return "G"
    return "S" if any(samples_passed[:k]) else "U"


def partition(run_path: str, split: str, plugin_files: Sequence[str] = ()) -> dict[str, Any]:
    """Writes the states of one split and the evidence kept for each problem.

    Returns:
        Facts for the manifest: ``states``, the counts of G, S and U.
    """
    run = RunDirectory.open(run_path)
    path = run.path / layout.states(split)
    responses = run.sealed(layout.responses(split))
    keep = run.manifest()["task"]["keep"]
    search = run.recipe.search
    counts: Counter[str] = Counter({"G": 0, "S": 0, "U": 0})
    rule = load_plugins(plugin_files).get("response rule", keep)

    def states() -> Iterator[ProblemState]:
        for problem_id, judged in read_judged(responses):
            found = state_row(problem_id, judged, search.k, stops(search, split), rule)
            counts[found.state] += 1
            yield found

    write_states(path, states(), lambda: {"states": dict(counts)})
    return {"states": dict(counts)}


def _check_samples(problem_id: str, judged: Sequence[Judged], k: int, stop: bool) -> None:
    """Holds a problem's responses to the search: all K samples, fewer only where it is solved."""
    indices = [j.response.index for j in judged]
    drawn = len(indices) - 1
    solved = any(j.verdict.passed for j in judged)
    require(
        indices == [GREEDY, *range(drawn)] and (drawn == k or (stop and drawn < k and solved)),
        f"problem {problem_id}: expected one greedy response and samples 0 to {k - 1}"
        f"{', fewer where one of them passes' if stop else ''}, found {indices}",
    )


def state_row(
    problem_id: str, judged: Sequence[Judged], k: int, stop: bool, rule: Registered
) -> ProblemState:
    """One problem's state, and the response that is kept of it.

    Args:
        problem_id: the problem.
        judged: its greedy response and samples with their verdicts, in order.
        k: K.
        stop: whether sampling may have stopped at the first success.
        rule: chooses which passing sample is kept.

    Raises:
        PluginError: the rule failed, or chose something else.
    """
    _check_samples(problem_id, judged, k, stop)
    greedy, *samples = judged
    passed = [j.verdict.passed for j in samples]
    state = state_of(greedy.verdict.passed, passed)
    kept: int | None = None
    if state == "G":
        kept = GREEDY
    elif state == "S":
        kept = _chosen(rule, [j.response for j in samples if j.verdict.passed]).index
    first = passed.index(True) if any(passed) else None
    return ProblemState(problem_id, state, len(passed), sum(passed), first, kept)


def _chosen(rule: Registered, passing: Sequence[Response]) -> Response:
    with rule.blamed():
        chosen = rule.value(list(passing))
    if not isinstance(chosen, Response) or chosen not in passing:
        raise rule.broke(
            f"gave a response to problem {passing[0].problem_id} that is none of its "
            f"{len(passing)} passing samples: {short(chosen)}"
        )
    return chosen
