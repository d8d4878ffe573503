"""Run untrusted programs that a model generated.

The sandbox needs no container engine, no root and no compiler: it sets up namespaces or landlock,
seccomp and limits from Python. Expected outputs never enter it; answers are compared outside.
``docs/verifiers.md`` describes which attacks it prevents and which it does not.
"""

from gapft_harness.sandbox.api import Sandbox, probe_tiers
from gapft_harness.sandbox.probes import Probe
from gapft_harness.sandbox.records import Limits, Program, Result, Test, TestResult
from gapft_harness.sandbox.schedule import InfrastructureError

__all__ = [
    "InfrastructureError",
    "Limits",
    "Probe",
    "Program",
    "Result",
    "Sandbox",
    "Test",
    "TestResult",
    "probe_tiers",
]
