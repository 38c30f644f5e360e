"""Tables in plain text, which read the same in a notebook, a terminal and a test."""


def table(header: list[str], rows: list[list]) -> str:
    """Return the rows under the header, in columns: numbers to the right, text to the left, None as nothing."""
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
    """Return a text that takes no more than this many letters."""
    return text if len(text) <= room else f"{text[: room - 3]}..."
