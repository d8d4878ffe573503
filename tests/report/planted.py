"""Synthetic inputs with planted outcomes; nothing here was measured."""

from dataclasses import replace

import numpy as np

from gapft_harness.core.records import STATUSES, Arm, Budget
from gapft_harness.report.reading.audits import Audit, DeploymentDecodes, TrainedArm
from gapft_harness.report.reading.columns import PASS
from gapft_harness.report.reading.inputs import ReportInputs

FAIL, TIMEOUT, ERROR = (STATUSES.index(s) for s in ("fail", "timeout", "error"))

#: Shares per condition: corrected of S, corrected of U, regressed of G; each seed varies a little.
FLOWS = {
    "gapft": (0.66, 0.26, 0.03),
    "uniform": (0.56, 0.24, 0.02),
    "replay": (0.49, 0.20, 0.01),
    "all_verified": (0.68, 0.30, 0.02),
}

#: The conditions of a planted run.
CONDITIONS = ("gapft", "uniform", "replay", "all_verified")


def build_recipe(**changes):
    base = {
        "name": "synthetic",
        "description": "Planted outcomes for tests of the report; nothing here was measured.",
        "data": {"task": "gapft_synthetic", "pool_limit": None},
        "model": {"backend": "recorded", "args": {"pretrained": "synthetic"}},
        "search": {"k": 8, "temperature": 0.7, "seed": 0},
        "budget": {"n": "recovered", "replay": 0},
        "conditions": list(CONDITIONS),
        "seeds": [13, 21, 73],
        "training": {"rank": 8, "learning_rate": 5e-5},
        "experiments": {},
        "statistics": {"replicates": 400, "seed": 0},
        "notes": ["A remark of the recipe."],
    }
    return {**base, **changes}


def build_audit(sizes, k):
    """Build problems of the three states, with samples that give these states."""
    n_g, n_s, n_u = sizes
    rng = np.random.default_rng(0)
    states = np.array(["G"] * n_g + ["S"] * n_s + ["U"] * n_u)
    samples = np.full((len(states), k), FAIL, dtype=np.uint8)
    samples[:n_g][rng.random((n_g, k)) < 0.75] = PASS
    recovered = rng.random((n_s, k)) < 0.3
    if n_s:
        recovered[np.arange(n_s), rng.integers(0, k, n_s)] = True
    samples[n_g : n_g + n_s][recovered] = PASS
    greedy = np.where(states == "G", PASS, FAIL).astype(np.uint8)
    if n_u > 3:
        greedy[-1], greedy[-2] = TIMEOUT, ERROR
    order = rng.permutation(len(states))
    ids = np.array([f"problem-{i:05}" for i in range(len(states))])
    numbers = rng.integers(2, 98, (len(states), 3))
    return Audit(
        ids=ids,
        prompts=tuple(f"Find {a} +{b} -{c}." for a, b, c in numbers),
        golds=tuple(f'"{a + b - c}"' for a, b, c in numbers),
        deployed=DeploymentDecodes(
            greedy[order],
            tuple(
                f"By eye; \\boxed{{{a + b - c if right else a + c}}}"
                for (a, b, c), right in zip(numbers, greedy[order] == PASS, strict=True)
            ),
        ),
        samples=samples[order],
    )


def replace_decodes(model, **changes):
    """Replace statuses or texts of the deployment decodes of an audit or an arm."""
    return replace(model, deployed=replace(model.deployed, **changes))


def build_arm(audit, condition, seed, flows=None, n=134):
    """Build an arm in which exactly the planted share of each state changes."""
    rng = np.random.default_rng([seed, *condition.encode()])
    kappa_s, kappa_u, rho_g = flows or FLOWS[condition]
    passed = audit.deployed.passed.copy()
    for state, share, outcome in (("S", kappa_s, True), ("U", kappa_u, True), ("G", rho_g, False)):
        members = np.flatnonzero(audit.states == state)
        changed = round(len(members) * min(1, share * (1 + 0.04 * rng.standard_normal())))
        passed[rng.permutation(members)[:changed]] = outcome
    statuses = np.where(passed, PASS, FAIL).astype(np.uint8)
    return TrainedArm(
        arm=Arm(condition, seed),
        deployed=DeploymentDecodes(
            statuses,
            tuple(
                f"steps of {condition}; \\boxed{{{'right' if right else 'wrong'}}}"
                for right in passed
            ),
        ),
        budget=Budget(n, 8, 8 * n, 56 * 8 * n + seed, 20 * 8 * n + len(condition), -(-8 * n // 16)),
        matched=condition != "all_verified",
        problems=n,
    )


def build_inputs(
    conditions=CONDITIONS,
    seeds=(13, 21, 73),
    sizes=(446, 280, 274),
    k=8,
    pool_states=(161, 134, 105),
    **changes,
):
    audit = build_audit(sizes, k)
    arms = tuple(
        build_arm(audit, name, seed, n=295 if name == "all_verified" else 134)
        for name in conditions
        for seed in seeds
    )
    fields = {
        "recipe": build_recipe(
            conditions=list(conditions), seeds=list(seeds), search={"k": k, "seed": 0}
        ),
        "task": {
            "name": "gapft_synthetic",
            "version": 1,
            "fingerprint": "0" * 12,
            "dropped": ["pool: 2 records whose prompt is in the audit dropped"],
            "verifier": "boxed_math",
            "verifier_params": {},
            "keep": "shortest",
            "episode": {"attempts": 1, "executions": 1},
        },
        "k": k,
        "conditions": tuple(conditions),
        "seeds": tuple(seeds),
        "pool_states": dict(zip("GSU", pool_states, strict=True)),
        "audit": audit,
        "arms": arms,
        "source": {"model": "synthetic"},
        "verdict_counts": {"pool": {"pass": 1500, "fail": 2090, "timeout": 7, "error": 3}},
        "training": {arm.arm.name: {"seconds": 4.5} for arm in arms},
        "warnings": ("pool: all 8 samples are the same on every one of 20 problems",),
        "seconds": {"search": 12.3, "states": 0.1, "train": 51.0},
        "versions": {"python": "3.11.2", "numpy": "2.4.0"},
    }
    return ReportInputs(**{**fields, **changes})


def build_replicate_inputs():
    """Build a run whose condition ``uniform`` repeats the training of ``gapft``."""
    base = build_inputs(("gapft", "uniform", "replay"))
    conditions = {"gapft": {}, "uniform": {"selector": "gapft", "replicate": 1}, "replay": {}}
    training = {
        trained.arm.name: {"adapter_sha256": f"{trained.arm.condition}{trained.arm.seed}"}
        for trained in base.arms
    }
    return replace(base, recipe={**base.recipe, "conditions": conditions}, training=training)
