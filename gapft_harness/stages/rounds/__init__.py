"""Rounds: a run whose source is the result of an earlier run."""
