"""How long a test waits for what should come at once."""

#: Seconds for one event, such as a line of output or the end of a process. Only a hang lasts as
#: long, also on a busy machine.
PATIENCE_S = 120.0

#: Seconds for a whole command, such as the demonstration beside three other tests.
COMMAND_S = 900.0
