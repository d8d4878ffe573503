"""The bridge to lm-evaluation-harness: the only package that imports ``lm_eval``.

Its tasks become splits of problems, and its models become samplers.
"""
