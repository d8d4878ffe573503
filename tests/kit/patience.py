"""How long a test waits for what should come at once."""

#: Seconds. Only a hang lasts as long, also on a busy machine that is ten times slower.
PATIENCE_S = 1800.0
