"""Whether splits are disjoint, and the findings of a verification."""
