"""The oracle: what the code of a commit computes, against what the working tree's code computes."""
