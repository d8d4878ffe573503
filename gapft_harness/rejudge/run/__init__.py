"""A finished run judged again: its verdicts, states, training sets and conclusions."""
