"""``gapft compare``: compare sample logs of lm_eval or another tool, before and after, by item.

Reads rows through log readers, and depends on neither lm_eval nor run directories.
"""
