"""Every figure of a report, computed once."""
