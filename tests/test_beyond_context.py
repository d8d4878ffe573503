"""Prompts and conversations that do not fit into the model's context."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from gapft_harness.core.records import CONTEXT_EXCEEDED, Decoding, Verdict
from gapft_harness.hooks.judge import Judge
from gapft_harness.hooks.protocols import Generated, ReportGeneration, Request, beyond_context
from gapft_harness.run_directory.tables import read_judged
from gapft_harness.stages.generation.episodes import build_episodes
from tests.generated import judge_and_write
from tests.kit.scripted import (
    PrefixVerifier,
    ScriptedSampler,
    build_problems,
    build_recipe,
    draw,
)


class CrampedSampler(ScriptedSampler):
    """Reports problem p0 and every second attempt as too long."""

    def generate(
        self, requests: Sequence[Request], decoding: Decoding, report: ReportGeneration
    ) -> list[Generated]:
        answers = super().generate(requests, decoding, report)
        return [
            beyond_context(r) if r.attempts or r.problem_id == "p0" else answer
            for r, answer in zip(requests, answers, strict=True)
        ]


def test_too_long_conversation_fails_the_episode(tmp_path: Path) -> None:
    script = [[True] * 6, [True] * 6]
    problems, verifier = build_problems(script, "twice"), PrefixVerifier()
    episodes = build_episodes(Judge(verifier), 3, "right")
    sampler = CrampedSampler(script)
    responses = draw(tmp_path / "store", problems, sampler, build_recipe(), verifier, episodes)
    facts = judge_and_write(
        tmp_path / "r.parquet", responses, problems, Judge(verifier), episodes, 3
    )
    judged = dict(read_judged(tmp_path / "r.parquet"))
    for j in judged["p1"]:
        assert j.response.finish_reason == CONTEXT_EXCEEDED
        assert [a.text.split()[0] for a in j.response.attempts] == ["wrong"]
        assert j.verdict == Verdict("fail", "prompt does not fit the context")
    assert all(j.response.attempts == () for j in judged["p0"])
    assert facts["executions"]["feedback_differs"] == []
    assert sampler.calls == 2, "two attempts and no third"
