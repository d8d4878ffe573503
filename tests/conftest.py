"""What holds for every test."""

from hypothesis import settings

# No law is a law of time: a busy machine's slow example is no counterexample.
settings.register_profile("tests", deadline=None)
settings.load_profile("tests")
