"""From blocks to Markdown and HTML, and the words and colours they share."""
