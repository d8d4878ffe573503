"""The audit's responses under another rule than the run's, as the report takes it in."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

#: A response with an answer; one without; one without that opens with the right answer.
VALID, INVALID, OPENS_RIGHT = range(3)


@dataclass(frozen=True, slots=True)
class OtherRule:
    """What another verifier says of the greedy responses to the audit.

    Attributes:
        name: the verifier; empty where there is none to ask.
        params: its parameters.
        permissive: whether it takes more forms of answers than the run's; else it takes fewer.
        why: where there is none, why.
        source: shape (P,), codes of its verdicts on the source's responses.
        arms: by the arm's name, shape (P,), codes of its verdicts on its responses.
        read: the source's (under an empty name) and each arm's responses by what the run's rule
            reads in them, shape (P,): ``VALID``, ``INVALID`` or ``OPENS_RIGHT``. Empty where the
            verifier gives no answers.
        opens: whether the verifier says what a response opens with.
    """

    name: str = ""
    params: Mapping[str, Any] = field(default_factory=dict)
    permissive: bool = True
    why: str = ""
    source: NDArray[np.uint8] = field(default_factory=lambda: np.zeros(0, dtype=np.uint8))
    arms: Mapping[str, NDArray[np.uint8]] = field(default_factory=dict)
    read: Mapping[str, NDArray[np.uint8]] = field(default_factory=dict)
    opens: bool = False
