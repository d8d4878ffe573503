"""Generating, judging and sealing responses: what search and audit share."""
