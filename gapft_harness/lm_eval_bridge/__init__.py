"""The bridge to lm-evaluation-harness: the only package that imports ``lm_eval``.

Its tasks become splits of problems, and its models become samplers. Supports lm_eval 0.4.13 and
0.5.0.dev1; ``task_file/versions.py`` holds the differences.
"""
