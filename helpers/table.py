"""Plain-text tables, which are the same in a notebook, a terminal and a test."""


def table(header: list[str], rows: list[list]) -> str:
    """Return a table of the header and the rows: numbers right-aligned, text left-aligned, None as an empty cell."""
    columns = list(zip(header, *rows, strict=True))
    texts = [["" if value is None else str(value) for value in column] for column in columns]
    widths = [max(map(len, column)) for column in texts]
    numeric = [all(isinstance(value, int | float | None) for value in column[1:]) for column in columns]
    lines = [
        "  ".join(
            text.rjust(width) if right else text.ljust(width)
            for text, width, right in zip(line, widths, numeric, strict=True)
        ).rstrip()
        for line in zip(*texts, strict=True)
    ]
    return "\n".join(lines)


def shortened(text: str, room: int) -> str:
    """Return a text shortened to at most `room` characters."""
    return text if len(text) <= room else f"{text[: room - 3]}..."
