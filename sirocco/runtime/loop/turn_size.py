"""How much a loop takes at a turn: more while turns are cheap, less when they are not."""

from __future__ import annotations

# How many times as much as at first a turn may take: the fixed costs (a record for each slot, an
# insertion into each index) are a small part of it by then. If records that are read one by one
# follow, the first turn takes half a second, an eighth of a lease.
FACTOR_MAX = 4


class TurnSize:
    """The limits of the next turn, from what turns have cost.

    Changes of plain queries are read as columns, at a tenth of the price of others: one limit for
    both would be too small for the former or too large for the latter.
    """

    def __init__(self, records: int, bytes_wanted: int, cpu_s_wanted: float) -> None:
        """Begins with the smallest turns.

        Args:
            records: of a turn, at least.
            bytes_wanted: a turn polls until it has so many, at least.
            cpu_s_wanted: CPU time of a turn, seconds.
        """
        self._records = records
        self._bytes_wanted = bytes_wanted
        self._cpu_s_wanted = cpu_s_wanted
        self._factor = 1

    @property
    def records_max(self) -> int:
        """Records that the next turn may take."""
        return self._records * self._factor

    @property
    def bytes_wanted(self) -> int:
        """Bytes after which the next turn takes no more."""
        return self._bytes_wanted * self._factor

    def note(self, cpu_s: float, *, was_full: bool) -> None:
        """Notes the CPU time of a turn, and whether it left records to the next one."""
        if cpu_s > 2 * self._cpu_s_wanted:
            self._factor = 1
        elif cpu_s > self._cpu_s_wanted:
            self._factor = max(1, self._factor // 2)
        elif was_full and 2 * cpu_s <= self._cpu_s_wanted:
            self._factor = min(FACTOR_MAX, 2 * self._factor)
