"""Generate, judge and store responses; shared by search and audit."""
