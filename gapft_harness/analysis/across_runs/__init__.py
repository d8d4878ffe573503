"""Replicates over several runs: as environments of one scaling, and as cells of one study."""
