"""``gapft export``: training sets as other trainers' datasets, with the budget beside them."""
