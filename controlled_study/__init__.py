"""A study from scratch on policies of mixed skills; not shipped in the wheel.

docs/controlled-study.md says what it asks, what was predicted, and what came out.
"""
