"""``gapft compare``: sample logs of lm_eval, before and after, item by item.

Reads what ``lm_eval --log_samples`` wrote, of any task; knows neither lm_eval nor run directories.
"""
