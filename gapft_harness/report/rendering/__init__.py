"""Render blocks as Markdown, HTML and on the terminal, with shared words and colours."""
