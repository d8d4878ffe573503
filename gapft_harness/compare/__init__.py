"""``gapft compare``: sample logs of lm_eval or another tool, before and after, item by item.

Reads rows of any log reader; knows neither lm_eval nor run directories.
"""
