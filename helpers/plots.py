"""Every figure of the course, in one style, drawn from plain data."""
