"""The page that a reviewer signs: its numbers, its findings, what they rest on, and the page as Markdown."""
