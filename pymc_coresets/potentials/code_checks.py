"""Whether rows look up entries that are there."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from pymc_coresets.exceptions import InvalidDataError
from pymc_coresets.potentials.kernel import Kernel
from pymc_coresets.reading.observations import Observations
from pymc_coresets.reading.template.codes import Lookup, lookups
from pymc_coresets.rows.fingerprints import FirstReading
from pymc_coresets.rows.passes import RowBlocks
from pymc_coresets.rows.streamed import StreamedRows
from pymc_coresets.rows.values import Rows

_BLOCK_ROWS = 2**16


class CodeCheck:
    """Which entries of tables the rows of a model ask for, compiled once.

    Parameters
    ----------
    observations : Observations
        Of a model with a template of the rows.

    Examples
    --------
    >>> import pymc as pm
    >>> from pymc_coresets.potentials.from_rows import template_of_rows
    >>> from pymc_coresets.rows.memory import InMemoryRows
    >>> with pm.Model() as model:
    ...     group, y = pm.Data("group", np.array([0, 1])), pm.Data("y", np.zeros(2))
    ...     mu = pm.Normal("mu", shape=2)
    ...     likelihood = pm.Normal("likelihood", mu[group], 1.0, observed=y)
    >>> template = template_of_rows(model, {"group": np.zeros((), int), "y": np.zeros(())})
    >>> arrays = [np.zeros(3) if row.name == "y" else np.array([1, 0, 2])
    ...           for row in template.observations.rows]
    >>> CodeCheck(template.observations).require_inside(InMemoryRows(arrays))
    Traceback (most recent call last):
    pymc_coresets.exceptions.InvalidDataError: observation 2: 'group' asks for entry 2 of 'mu',
    which has the entries 0 to 1. (docs: troubleshooting#the-data-and-the-model)
    """

    def __init__(self, observations: Observations) -> None:
        self._observations = observations
        plain = {row.placeholder for row in observations.rows}
        found = lookups(observations)
        self._plain = [lookup for lookup in found if lookup.codes in plain]
        self._computed = [lookup for lookup in found if lookup.codes not in plain]

    def require_inside(self, source: RowBlocks) -> None:
        """Refuse rows that look up what is not there: a reading of them, or two, if any look up.

        Raises
        ------
        InvalidDataError
            If a code is not that of an entry; the message names the row, the code and the table.
        """
        # A table may itself hold codes: those that lead there come first.
        if self._plain:
            _require(self._plain, self._plain_codes, source)
        if self._computed:
            _require(self._computed, self._computed_codes, source)

    def require_scanned(self, source: StreamedRows, first: FirstReading) -> None:
        """Do the same for rows of which the first reading knows the ranges of the columns.

        They are read once more only where codes are computed from columns.
        """
        for lookup in self._plain:
            _check_ranges(lookup, source, first)
        if self._computed:
            _require(self._computed, self._computed_codes, source)

    @cached_property
    def _plain_codes(self) -> Kernel:
        return self._kernel(self._plain)

    @cached_property
    def _computed_codes(self) -> Kernel:
        return self._kernel(self._computed)

    def _kernel(self, found: Sequence[Lookup]) -> Kernel:
        obs = self._observations
        of_rows = [obs.n_rows, *(row.placeholder for row in obs.rows)]
        axes = {i: row.axis for i, row in enumerate(obs.rows)}
        return Kernel([], of_rows, [lookup.codes for lookup in found], axes)


def _require(found: Sequence[Lookup], kernel: Kernel, source: RowBlocks) -> None:
    bad = source.reduce(_CodesPass(kernel, [lookup.length for lookup in found]))
    if bad is not None:
        raise _outside(source, found[bad.lookup], bad.code, bad.position)


def _check_ranges(lookup: Lookup, source: StreamedRows, first: FirstReading) -> None:
    [name] = lookup.columns
    for chunk in source.source.chunks:
        low, high = first.chunks[chunk.start].ranges[name]
        if low < 0 or high >= lookup.length:
            codes = source.source.read(chunk, [name])[name]
            row = int(np.argwhere((codes < 0) | (codes >= lookup.length))[0][0])
            code = int(codes[row][(codes[row] < 0) | (codes[row] >= lookup.length)].flat[0])
            raise _outside(source, lookup, code, chunk.start + row)


class _BadCode(NamedTuple):
    position: int
    lookup: int
    code: int


@dataclass(frozen=True, eq=False)
class _CodesPass:
    """Find the first row that looks up what is not there."""

    kernel: Kernel
    lengths: Sequence[int]
    size: int = _BLOCK_ROWS

    def begin(self) -> Callable[[Rows], _BadCode | None]:
        evaluate = self.kernel.program.given()

        def check(rows: Rows) -> _BadCode | None:
            values = evaluate(np.asarray(len(rows)), *self.kernel.arrays(rows))
            for i, (codes, length) in enumerate(zip(values, self.lengths, strict=True)):
                bad = np.argwhere((codes < 0) | (codes >= length))
                if len(bad):
                    return _BadCode(int(rows.positions[bad[0][0]]), i, int(codes[tuple(bad[0])]))
            return None

        return check

    def joined(self, parts: Iterable[_BadCode | None]) -> _BadCode | None:
        return next(filter(None, list(parts)), None)


def _outside(source: RowBlocks, lookup: Lookup, code: int, position: int) -> InvalidDataError:
    names = " and ".join(map(repr, lookup.columns))
    return InvalidDataError(
        f"{source.place(position)}: {names} asks for entry {code} of {lookup.table!r}, "
        f"which has the entries 0 to {lookup.length - 1}."
    )
