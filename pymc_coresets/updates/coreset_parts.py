"""Coresets as rows with their data: what another construction chooses from, or is told of again."""

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from hashlib import blake2b
from typing import Any, Self

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from pymc_coresets.exceptions import UnsupportedModelError, warn_user
from pymc_coresets.glm.control_variates.interfaces import carried_over
from pymc_coresets.potentials.evaluation import LogLikelihood
from pymc_coresets.potentials.kept_rows import kept_dataset, rows_of_dataset
from pymc_coresets.potentials.of_model import RowsToRead, template_of_rows
from pymc_coresets.potentials.remainder import refuse_unweighted
from pymc_coresets.reading.observations import Observations
from pymc_coresets.reading.quadratic import Quadratic
from pymc_coresets.reading.user_model import settable_data
from pymc_coresets.rows.values import Rows
from pymc_coresets.weighted_rows import WeightedRows, required_likelihood

#: Attribute of a history: some rows of each construction, by their digest.
KNOWN = "known_rows"
_MOST, _NEIGHBOURS = 20, 2_000  # rows
_UNLIKELY = 1e-6  # chance that rows are said to have come before which did not


@dataclass(frozen=True, kw_only=True, eq=False)
class CoresetPart:
    """A coreset as rows with their data, for a model with a template of the rows.

    Parameters
    ----------
    template : LogLikelihood
    kept : xarray.Dataset
        As `kept_dataset` makes it.
    n_rows : int
        Rows that it stands for: positions are below it.
    wanted : RowsToRead
        How its observations are found, and who evaluates them.
    quadratic : Quadratic, optional
        What stands for its rows besides, by the parameters of the template.
    """

    template: LogLikelihood
    kept: xr.Dataset
    n_rows: int
    wanted: RowsToRead
    quadratic: Quadratic | None = None

    @classmethod
    def of(cls, coreset: WeightedRows) -> Self:
        """Take the rows out of a coreset.

        Raises
        ------
        CoresetError
            If it was read without its model.
        UnsupportedModelError
            If its rows are not data of the model, or are cells of several dims.
        """
        loglik, settings = required_likelihood(coreset), coreset.settings
        if isinstance(settings["dim"], list) and len(settings["dim"]) > 1:
            raise UnsupportedModelError(
                f"The rows of this coreset are cells of dim={settings['dim']!r}: coresets of cells "
                "can be neither extended nor merged. Put the data into long format, one row for "
                "each cell, and build a coreset of that; or build one of all cells."
            )
        if loglik.observations.units is not None:
            raise UnsupportedModelError(
                f"{list(loglik.observations.integrated)!r} were integrated out of this coreset: "
                "such coresets can be neither extended nor merged. Build one of all rows, or one "
                "with integrate=False."
            )
        wanted = RowsToRead(**settings, backend=loglik.backend or "numba")
        template, kept, quadratic = loglik, coreset.data, coreset.quadratic
        n_rows, held = coreset.n_distinct, loglik.observations
        if kept is None:
            template, n_rows = _template_of(held, wanted), held.n_obs
            rows = template.in_memory.at(coreset.indices)
            kept = kept_dataset(template, rows, coreset.weights)
            if quadratic is not None:
                quadratic = carried_over(quadratic, held, template.observations)
        return cls(template=template, kept=kept, n_rows=n_rows, wanted=wanted, quadratic=quadratic)


def _template_of(observations: Observations, wanted: RowsToRead) -> LogLikelihood:
    """Take the rows that a model holds for a template of themselves."""
    refuse_unweighted(observations)
    if observations.sets:
        raise UnsupportedModelError(
            f"The rows of this coreset are of several terms, "
            f"{', '.join(s.names for s in observations.sets)}, with data of their own: such "
            "coresets can be neither extended nor merged. Build one of all rows."
        )
    held = settable_data(observations.model)
    columns = {n: v[0] for n, v in held.items() if v.shape[:1] == (observations.n_obs,)}
    return template_of_rows(observations.model, columns, wanted)


@dataclass(frozen=True)
class KnownRows:
    """Some of the rows that a construction read.

    Parameters
    ----------
    start, stop : int
        Positions of its first row, and after its last.
    where : tuple of int
        Which of its rows these are.
    digest : str
        Of their data.
    """

    start: int
    stop: int
    where: tuple[int, ...]
    digest: str

    @classmethod
    def kept(cls, part: CoresetPart) -> Self:
        """Note rows that a coreset kept of those that it was built from."""
        rows = rows_of_dataset(part.template.observations, part.kept)
        rows = rows.take(_spread(len(rows)))
        return cls(0, part.n_rows, tuple(rows.positions.tolist()), _digest(part.template, rows))

    @classmethod
    def spread(cls, new: LogLikelihood, start: int) -> Self:
        """Note rows from all over new ones, which come after those before `start`."""
        rows = new.source.at(_spread(new.n_rows))
        where = tuple(rows.positions.tolist())
        return cls(start, start + new.n_rows, where, _digest(new, rows))

    def begins(self, new: LogLikelihood) -> bool:
        """Whether new rows begin with these, where equal ones are unlikely to be found."""
        if self.stop - self.start > new.n_rows:
            return False
        where = np.array(self.where, dtype=np.int64)
        rows = new.source.at(where)
        if _digest(new, rows) != self.digest:
            return False
        steps = np.arange(1, 1 + _NEIGHBOURS // len(where))
        near = np.unique((where[:, None] + steps) % (self.stop - self.start))
        others = new.source.at(np.setdiff1d(near, where))
        n_equal = sum(int(_equal(others, row).sum()) for row in rows.blocks(1))
        share = (1 + n_equal) / (2 + len(rows) * len(others))
        return len(rows) * math.log(share) < math.log(_UNLIKELY)


def known_before(part: CoresetPart, attrs: Mapping[str, Any], start: int = 0) -> list[KnownRows]:
    """Return what is known of the rows of a coreset: of each construction, or of those it kept.

    Parameters
    ----------
    part : CoresetPart
        The coreset.
    attrs : mapping of str
        Those of its history.
    start : int, default 0
        The position of its first row from now on.
    """
    if KNOWN in attrs:
        found = [
            KnownRows(**one | {"where": tuple(one["where"])}) for one in json.loads(attrs[KNOWN])
        ]
    else:
        found = [KnownRows.kept(part)]
    return [replace(one, start=one.start + start, stop=one.stop + start) for one in found]


def noted(known: list[KnownRows]) -> str:
    """Return it as an attribute of a history."""
    return json.dumps([asdict(one) for one in known])


def warn_of_known_rows(known: list[KnownRows], new: LogLikelihood) -> None:
    """Warn where new rows begin with those that a construction read before.

    Costs a reading of the chunks that hold twenty rows, for each construction.

    Warns
    -----
    CoresetWarning
    """
    for one in known:
        if one.begins(new):
            n_rows = one.stop - one.start
            which = "New" if n_rows == new.n_rows else f"The first {n_rows:,} new"
            warn_user(
                f"{which} rows are rows {one.start:,} to {one.stop - 1:,} of those that the "
                "coreset stands for already: they count twice now. Give only rows that are not "
                "among these, or build a coreset of all of them."
            )


def _spread(n_rows: int) -> NDArray[np.int64]:
    return np.linspace(0, n_rows - 1, min(n_rows, _MOST)).astype(np.int64)


def _digest(loglik: LogLikelihood, rows: Rows) -> str:
    digest = blake2b(digest_size=16)
    for name, array in sorted(loglik.observations.by_name(rows).items()):
        digest.update(f"{name} {array.shape}".encode())
        digest.update(array.astype(np.float64).tobytes())
    return digest.hexdigest()


def _equal(rows: Rows, one: Rows) -> NDArray[np.bool_]:
    """Say which rows have the same data as one."""
    same = np.ones(len(rows), dtype=bool)
    for array, value in zip(rows.arrays, one.arrays, strict=True):
        same &= (array == value).reshape(len(rows), -1).all(axis=1)
    return same
