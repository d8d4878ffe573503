"""Tables, sections and pages: the same rows as HTML, Markdown, terminal output, JSON and CSV."""
