"""Logged responses and their verdicts, from any log; independent of lm_eval and of runs."""
