"""What tests share: base runs and their snapshots, damage, tasks, models, plugins, commands.

A test imports this package, never another test. Base runs are made once per session and are
read-only; ``run_at`` (``tests/conftest.py``) copies one.
"""
