"""Rows of texts: reading them, writing them, and adding them up."""

from __future__ import annotations

Row = list[str]


def parse_line(line: str, separator: str = ",") -> Row:
    """The fields of a line of CSV. A field in quotes may hold separators, and a quote as two of them."""
    fields: Row = []
    field, quoted, at = "", False, 0
    while at < len(line):
        character = line[at]
        if quoted and character == '"' and line[at + 1 : at + 2] == '"':
            field += '"'
            at += 1
        elif character == '"':
            quoted = not quoted
        elif character == separator and not quoted:
            fields.append(field)
            field = ""
        else:
            field += character
        at += 1
    fields.append(field)
    return fields


def write_line(fields: Row, separator: str = ",") -> str:
    """A line that `parse_line` reads back."""
    written = []
    for field in fields:
        if separator in field or '"' in field:
            doubled = field.replace('"', '""')
            field = f'"{doubled}"'
        written.append(field)
    return separator.join(written)


def widths(rows: list[Row]) -> list[int]:
    """The longest field of every column."""
    found: list[int] = []
    for row in rows:
        for column, field in enumerate(row):
            if column == len(found):
                found.append(0)
            found[column] = max(found[column], len(field))
    return found


def aligned(rows: list[Row]) -> list[str]:
    """A line for every row, in which columns begin at the same place. No line ends with a space."""
    sizes = widths(rows)
    lines = []
    for row in rows:
        padded = [field.ljust(sizes[column]) for column, field in enumerate(row)]
        lines.append("  ".join(padded).rstrip())
    return lines


def transposed(rows: list[Row]) -> list[Row]:
    """Columns as rows; short rows are filled with empty fields."""
    most = max((len(row) for row in rows), default=0)
    return [[row[column] if column < len(row) else "" for row in rows] for column in range(most)]


def totals(rows: list[Row], key: int, value: int) -> dict[str, int]:
    """The sum of one column by the fields of another, in order of those."""
    sums: dict[str, int] = {}
    for row in rows:
        sums[row[key]] = sums.get(row[key], 0) + int(row[value])
    return dict(sorted(sums.items()))


def ranked(rows: list[Row], column: int) -> list[int]:
    """Every row's place by the numbers in a column, the largest first; equal numbers have the same place."""
    numbers = [int(row[column]) for row in rows]
    places = []
    for number in numbers:
        larger = sum(other > number for other in numbers)
        places.append(larger + 1)
    return places
