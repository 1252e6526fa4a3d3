"""Records in parallel integer arrays: a row is an index, a column is an array, and freed rows are reused."""

from __future__ import annotations

from array import array


class RowPool:
    """Allocates rows. Every column has an entry for every row that was ever allocated."""

    def __init__(self) -> None:
        self.live = 0
        self._columns: list[array[int]] = []
        self._free: array[int] = array("i")
        self._rows = 0

    def column(self, kind: str = "i") -> array[int]:
        """A new column, of 32-bit integers unless `kind` (see `array`) is another type. Columns must be added before
        the first row."""
        column: array[int] = array(kind)
        self._columns.append(column)
        return column

    def take(self) -> int:
        """Take a row; its values are those of its previous use, or 0."""
        self.live += 1
        if self._free:
            return self._free.pop()
        for column in self._columns:
            column.append(0)
        self._rows += 1
        return self._rows - 1

    def give(self, row: int) -> None:
        """Return a row for reuse."""
        self.live -= 1
        self._free.append(row)
