"""Coresets as rows with their data, which another construction chooses from."""

from dataclasses import dataclass
from typing import Self

import xarray as xr

from pymc_coresets.exceptions import UnsupportedModelError
from pymc_coresets.glm.control_variates.interfaces import carried_over
from pymc_coresets.potentials.evaluation import LogLikelihood
from pymc_coresets.potentials.from_rows import RowsToRead, template_of_rows
from pymc_coresets.potentials.kept_rows import kept_dataset
from pymc_coresets.potentials.remainder import refuse_unweighted
from pymc_coresets.reading.observations import Observations
from pymc_coresets.reading.rewriting.quadratic import Quadratic
from pymc_coresets.reading.user_model import settable_data
from pymc_coresets.weighted_rows import WeightedRows, required_likelihood


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
