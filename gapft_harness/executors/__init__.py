"""Executors: run the jobs of a stage, on this machine or on a Ray cluster."""
