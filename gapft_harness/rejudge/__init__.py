"""``gapft rejudge``: judge saved responses again with a different verifier, without a model."""
