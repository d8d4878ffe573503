"""Generate, judge and seal responses; shared by search and audit."""
