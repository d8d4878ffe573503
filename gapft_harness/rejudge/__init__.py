"""``gapft rejudge``: saved responses judged again by another verifier or rule, without a model."""
