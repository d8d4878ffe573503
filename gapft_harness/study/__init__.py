"""Studies: several runs, each a cell of one comparison, run one by one and reported together."""
