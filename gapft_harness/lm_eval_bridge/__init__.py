"""The bridge to lm-evaluation-harness: the only package that imports ``lm_eval``.

Its tasks become splits of problems, its models become samplers. Written for lm_eval 0.4.13, and for
0.5.0.dev1 as far as ``task_file/versions.py`` says where they differ.
"""
