"""A prompt, or an episode's conversation, that the model has no room for."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from gapft_harness.core.records import CONTEXT_EXCEEDED, Decoding, Verdict
from gapft_harness.hooks.protocols import Generated, ReportGeneration, Request, beyond_context
from gapft_harness.run_directory.tables import read_judged
from gapft_harness.stages.generation.episodes import build_episodes
from gapft_harness.stages.generation.sealing import write_responses
from tests.test_early_stop import Right, Scripted, draw, problems, recipe


class Cramped(Scripted):
    """Has no room for problem p0, and none for any second attempt."""

    def generate(
        self, requests: Sequence[Request], decoding: Decoding, report: ReportGeneration
    ) -> list[Generated]:
        answers = super().generate(requests, decoding, report)
        return [
            beyond_context(r) if r.attempts or r.problem_id == "p0" else answer
            for r, answer in zip(requests, answers, strict=True)
        ]


class Generous(Right):
    """Passes even an empty response."""

    def verify(self, responses: Sequence[str], golds: Sequence[Any]) -> list[Verdict]:
        super().verify(responses, golds)
        return [Verdict("pass") for _ in responses]


def test_a_prompt_without_room_fails_unasked_and_is_named_and_counted(tmp_path: Path) -> None:
    script = [[True] * 6, [True] * 6]
    of, verifier = problems(script), Generous()
    responses = draw(tmp_path / "store", of, Cramped(script), recipe("never"), verifier)
    facts = write_responses(tmp_path / "r.parquet", responses, of, verifier, extra={}, executions=3)
    judged = dict(read_judged(tmp_path / "r.parquet"))
    assert {j.verdict.status for j in judged["p1"]} == {"pass"}
    assert {(j.verdict.status, j.verdict.reason) for j in judged["p0"]} == {
        ("fail", "prompt does not fit the context")
    }
    assert facts["finish_reasons"] == {CONTEXT_EXCEEDED: 6, "stop": 6}
    assert facts["verdicts"] == {"fail": 6, "pass": 6}
    assert "" not in verifier.judged, "the verifier is not asked"
    assert facts["warnings"][0].startswith("1 problem has a prompt")
    assert "not generated: 6," in facts["warnings"][0]
    assert facts["warnings"][0].endswith("first: p0")


def test_a_conversation_without_room_ends_its_episode_as_failed(tmp_path: Path) -> None:
    script = [[True] * 6, [True] * 6]
    of, verifier = problems(script, "twice"), Right()
    episodes = build_episodes(verifier, 3, "right")
    sampler = Cramped(script)
    responses = draw(tmp_path / "store", of, sampler, recipe("never"), verifier, episodes)
    facts = write_responses(
        tmp_path / "r.parquet", responses, of, verifier, extra={}, episodes=episodes, executions=3
    )
    judged = dict(read_judged(tmp_path / "r.parquet"))
    for j in judged["p1"]:
        assert j.response.finish_reason == CONTEXT_EXCEEDED
        assert [a.text.split()[0] for a in j.response.attempts] == ["wrong"]
        assert j.verdict == Verdict("fail", "prompt does not fit the context")
    assert all(j.response.attempts == () for j in judged["p0"])
    assert facts["executions"]["feedback_differs"] == []
    assert sampler.calls == 2, "two attempts and no third"
