"""Early stop draws fewer samples, but keeps selections of rules that take the first pass."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gapft_harness.core.errors import GapftError, PluginError, UserError
from gapft_harness.core.records import GREEDY, Decoding, Problem, Verdict
from gapft_harness.hooks.manager import load_plugins
from gapft_harness.hooks.protocols import (
    Generated,
    Generation,
    ReportGeneration,
    ReportProgress,
    Request,
    report_nothing,
)
from gapft_harness.recipe.reading import check_recipe
from gapft_harness.recipe.recipe import Recipe
from gapft_harness.run_directory.directory import RunDirectory
from gapft_harness.run_directory.parquet import read_facts
from gapft_harness.run_directory.tables import read_judged
from gapft_harness.stages.generation.chunks import DecodePhase
from gapft_harness.stages.generation.episodes import Episodes, build_episodes
from gapft_harness.stages.generation.generation import (
    build_search_phases,
    check_early_stop,
    divide_into_chunks,
)
from gapft_harness.stages.generation.sealing import write_responses
from gapft_harness.stages.generation.stored_files import StoredResponses
from gapft_harness.stages.search.states import write_split_states
from tests.generated import generate_missing, place_chunks, read_contents, read_stored

K = 5
ONE = Decoding(do_sample=False, max_gen_toks=4)

#: For each problem, whether the greedy decode and the K samples are right.
Script = list[list[bool]]


class ScriptedSampler:
    """Answers from the script alone; records every requested index."""

    def __init__(self, script: Script, fail_after: int | None = None) -> None:
        self.script = script
        self.asked: list[tuple[str, int]] = []
        self.calls = 0
        self._fail_after = fail_after

    def generate(
        self, requests: Sequence[Request], decoding: Decoding, report: ReportGeneration
    ) -> list[Generated]:
        if self.calls == self._fail_after:
            raise KeyboardInterrupt
        self.calls += 1
        self.asked += [(r.problem_id, index) for r in requests for index in r.indices]
        return [
            Generated(tuple(r.text.encode()), tuple(self._write(r, index) for index in r.indices))
            for r in requests
        ]

    def _write(self, request: Request, index: int) -> Generation:
        right = self.script[int(request.problem_id[1:])][index + 1]
        last = len(request.attempts) == 1 or not request.prompt.startswith("twice")
        word = "right" if right and last else "wrong"
        text = f"{word} {request.problem_id}.{index}.{len(request.attempts)}"
        return Generation(text, tuple(text.encode()), "stop")

    def describe(self) -> dict[str, Any]:
        return {}

    def close(self) -> None:
        pass


class PrefixVerifier:
    """Passes texts that begin with the gold; records every judged text."""

    def __init__(self) -> None:
        self.judged: list[str] = []

    def verify(self, responses: Sequence[str], golds: Sequence[Any]) -> list[Verdict]:
        self.judged += responses
        pairs = zip(responses, golds, strict=True)
        return [Verdict("pass" if text.startswith(gold) else "fail", "why") for text, gold in pairs]

    def feedback(self, responses: Sequence[str], golds: Sequence[Any]) -> list[str | None]:
        return [None if text.startswith("right") else "again" for text in responses]


def build_recipe(stop: str, size: int = 1, **more: Any) -> Recipe:
    content = {
        "name": "r",
        "data": {"task": "t"},
        "model": {"args": {"pretrained": "none"}},
        "search": {"k": K, "stop": stop, "round": size, "chunk": 2},
        **more,
    }
    return check_recipe(content, "test")


def build_problems(script: Script, prompt: str = "ask") -> list[Problem]:
    return [Problem(f"p{i}", f"{prompt} {i}", "right") for i in range(len(script))]


def build_phases(recipe: Recipe) -> list[DecodePhase]:
    return build_search_phases(ONE, recipe.search, recipe.search.stop == "first_pass")


def draw(
    folder: Path,
    problems: Sequence[Problem],
    sampler: ScriptedSampler,
    recipe: Recipe,
    verifier: PrefixVerifier,
    episodes: Episodes | None = None,
    progress: ReportProgress = report_nothing,
) -> StoredResponses:
    return generate_missing(
        folder, problems, build_phases(recipe), sampler, progress=progress, episodes=episodes,
        verifier=verifier,
    )  # fmt: skip


def search_pool(
    folder: Path, problems: Sequence[Problem], script: Script, recipe: Recipe, attempts: int = 1
) -> tuple[RunDirectory, ScriptedSampler, PrefixVerifier]:
    """Search, seal and partition a run's pool under the rule ``first``."""
    run = RunDirectory.create_or_open(folder, recipe)
    run.update_manifest(lambda manifest: manifest.update(task={"keep": "first"}))
    sampler, verifier = ScriptedSampler(script), PrefixVerifier()
    episodes = build_episodes(verifier, attempts, "right")
    responses = draw(folder / "store", problems, sampler, recipe, verifier, episodes)
    write_responses(
        run.path / "pool/responses.parquet",
        responses,
        problems,
        verifier,
        extra={},
        episodes=episodes,
    )
    run.seal("pool/responses.parquet")
    write_split_states(str(run.path), "pool")
    return run, sampler, verifier


def read_states(run: RunDirectory) -> dict[str, dict[str, Any]]:
    rows = pq.read_table(run.path / "pool/states.parquet").to_pylist()
    return {row["problem_id"]: row for row in rows}


scripts = st.lists(st.lists(st.booleans(), min_size=K + 1, max_size=K + 1), min_size=1, max_size=6)


@given(script=scripts, size=st.integers(1, K + 1), twice=st.booleans())
@settings(max_examples=25, deadline=None)
def test_early_stop_keeps_states_and_evidence(script: Script, size: int, twice: bool) -> None:
    problems, attempts = (
        (build_problems(script, "twice"), 2) if twice else (build_problems(script), 1)
    )
    with tempfile.TemporaryDirectory() as folder:
        full, _, _ = search_pool(
            Path(folder) / "full", problems, script, build_recipe("never"), attempts
        )
        stopped, sampler, verifier = search_pool(
            Path(folder) / "stopped", problems, script, build_recipe("first_pass", size), attempts
        )
        expected, actual = read_states(full), read_states(stopped)
        responses = dict(read_judged(stopped.path / "pool/responses.parquet"))
        facts = read_facts(stopped.path / "pool/responses.parquet")
        whole = dict(read_judged(full.path / "pool/responses.parquet"))
    drawn = 0
    for (name, row), outcomes in zip(sorted(actual.items()), script, strict=True):
        assert row["state"] == expected[name]["state"]
        assert row["kept_index"] == expected[name]["kept_index"]
        if row["state"] == "S":
            assert row["first_success"] == expected[name]["first_success"]
        # Complete rounds, none after the round that solved the problem.
        greedy, *samples = outcomes
        first = -1 if greedy else samples.index(True) if True in samples else K - 1
        sample_count = min(K, -(-(first + 1) // size) * size)
        assert row["samples"] == sample_count
        assert [j.response.index for j in responses[name]] == [GREEDY, *range(sample_count)]
        full_responses = {j.response.index: j for j in whole[name]}
        for j in responses[name]:
            other = full_responses[j.response.index]
            assert (j.response.text, j.response.attempts, j.verdict) == (
                other.response.text, other.response.attempts, other.verdict
            )  # fmt: skip
        drawn += sample_count
    assert facts["drawn"]["samples"] == drawn
    assert len(set(sampler.asked)) == len(script) + drawn, "no other response was requested"
    if not twice:
        assert len(verifier.judged) == len(script) + drawn, "each response is judged once"


def test_resumes_at_every_round(tmp_path: Path) -> None:
    script = [[False, False, True, False, True, False], [True] * 6, [False] * 6]
    problems = build_problems(script)
    sampler = ScriptedSampler(script)
    draw(tmp_path / "whole", problems, sampler, build_recipe("first_pass", 2), PrefixVerifier())
    rounds = {"p0": 1, "p1": 0, "p2": 3}
    needed = [
        max(rounds[problem.id] for problem in chunk) for chunk in divide_into_chunks(problems, 2)
    ]
    assert sampler.calls == 2 + sum(needed), "greedy decodes, then the needed rounds"
    for stop in range(sampler.calls):
        cut = tmp_path / f"cut{stop}"
        with pytest.raises(KeyboardInterrupt):
            draw(
                cut,
                problems,
                ScriptedSampler(script, stop),
                build_recipe("first_pass", 2),
                PrefixVerifier(),
            )
        again = ScriptedSampler(script)
        draw(cut, problems, again, build_recipe("first_pass", 2), PrefixVerifier())
        assert again.calls == sampler.calls - stop
        assert read_contents(cut) == read_contents(tmp_path / "whole")


@pytest.mark.parametrize("stop", range(7))
def test_progress_counts_stored_responses(stop: int, tmp_path: Path) -> None:
    """Also after an interruption; the total excludes samples that solved problems do not need."""
    script = [[False, False, True, False, True, False], [True] * 6, [False] * 6]
    seen: list[tuple[int, int]] = []
    problems, recipe = build_problems(script), build_recipe("first_pass", 2)
    with contextlib.suppress(KeyboardInterrupt):
        draw(tmp_path, problems, ScriptedSampler(script, stop), recipe, PrefixVerifier())
    responses = read_stored(place_chunks(tmp_path, problems, build_phases(recipe)))
    count_before = sum(len(entry.responses) for entry in responses.read(["p0", "p1", "p2"]))
    responses = draw(
        tmp_path, problems, ScriptedSampler(script), recipe, PrefixVerifier(),
        progress=lambda done, total, tokens=0, note="": seen.append((done, total)),
    )  # fmt: skip
    count = sum(len(entry.responses) for entry in responses.read(["p0", "p1", "p2"]))
    assert count == 3 + 2 + 0 + 5
    assert seen[0][0] == count_before
    assert seen[-1] == (count, count)
    dones, totals = zip(*seen, strict=True)
    assert list(dones) == sorted(dones)
    assert list(totals) == sorted(totals, reverse=True)


class FickleVerifier(PrefixVerifier):
    """Passes each response only the first time."""

    def verify(self, responses: Sequence[str], golds: Sequence[Any]) -> list[Verdict]:
        seen = set(self.judged)
        return [
            verdict if text not in seen else Verdict("timeout", "a busy machine")
            for text, verdict in zip(responses, super().verify(responses, golds), strict=True)
        ]


def test_seals_the_verdict_that_stopped_a_problem(tmp_path: Path) -> None:
    script = [[False, True, False, False, False, False]]
    problems, verifier = build_problems(script), FickleVerifier()
    responses = draw(
        tmp_path / "store", problems, ScriptedSampler(script), build_recipe("first_pass"), verifier
    )
    facts = write_responses(tmp_path / "responses.parquet", responses, problems, verifier, extra={})
    assert facts["verdicts"] == {"fail": 1, "pass": 1}


def test_rejects_missing_samples_of_unsolved_problem(tmp_path: Path) -> None:
    script = [[False] * 6]
    run, _, _ = search_pool(
        tmp_path / "run", build_problems(script), script, build_recipe("first_pass")
    )
    path = run.path / "pool/responses.parquet"
    table = pq.read_table(path)
    pq.write_table(table.slice(0, 4), path)
    run.update_manifest(lambda manifest: manifest["files"].clear())
    run.seal("pool/responses.parquet")
    with pytest.raises(GapftError, match="samples 0 to 4, fewer if one of them passes, found"):
        write_split_states(str(run.path), "pool")


def test_rejects_rules_that_compare_all_samples() -> None:
    plugins, task = load_plugins(), {"episode": {"attempts": 1, "executions": 1}}
    first, shortest = (plugins.get("response rule", name) for name in ("first", "shortest"))
    stopping = build_recipe("first_pass").search
    check_early_stop(stopping, first, task)
    check_early_stop(build_recipe("never").search, shortest, task)
    with pytest.raises(UserError, match=r"'shortest' compares all .* evidence\.keep: first"):
        check_early_stop(stopping, shortest, task)
    with pytest.raises(UserError, match=r"cannot be combined with episode\.executions: 3"):
        check_early_stop(stopping, first, {"episode": {"attempts": 1, "executions": 3}})


def test_rejects_round_without_stop() -> None:
    with pytest.raises(UserError, match=r"search\.round.*only with search\.stop: first_pass"):
        build_recipe("never", 2)


def test_only_response_rules_may_stop_early(tmp_path: Path) -> None:
    plugin = tmp_path / "plugin.py"
    plugin.write_text(
        "from gapft_harness import hookimpl\n\n\n"
        "@hookimpl\n"
        "def register_selectors(register):\n"
        "    register('x', lambda pool, n, rng: [], stops_early=True)\n"
    )
    with pytest.raises(PluginError, match="unknown option 'stops_early'"):
        load_plugins([str(plugin)])
