"""Coresets of units joined with other units: of new rows, or of another coreset."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Self

import numpy as np
import pymc as pm
import xarray as xr

from pymc_coresets.display import counted
from pymc_coresets.exceptions import InvalidDataError
from pymc_coresets.growth.reductions import moved_to, require_same_densities
from pymc_coresets.reading.quadratic import Quadratic
from pymc_coresets.reading.units.joined_units import model_of_units, refuse_other_data
from pymc_coresets.reading.units.labels import as_index, kind_of, texts_of
from pymc_coresets.reading.units.observations_of_units import as_units
from pymc_coresets.rowlogp.evaluation import LogLikelihood
from pymc_coresets.rowlogp.filled_model import with_rows_of_units
from pymc_coresets.rowlogp.kept_rows import REPRESENTED, kept_dataset, likelihood_of_units
from pymc_coresets.rowlogp.of_model import RowsToRead, Settings, units_at
from pymc_coresets.rowlogp.units import unit_model
from pymc_coresets.rows.keyed import random_key
from pymc_coresets.sampling.units.centring import integrated_out
from pymc_coresets.solving.solution import Solution
from pymc_coresets.weighted_rows import Fields, WeightedRows, chosen_rows, required_likelihood

_REMEDY = (
    "Pass a model that differs in its rows and levels only; what is computed from all rows, such "
    "as x - x.mean(), differs with them and belongs before pm.Data."
)


@dataclass(frozen=True, kw_only=True, eq=False)
class UnitPart:
    """Some units with their data, and the labels of all units that they represent.

    Parameters
    ----------
    loglik : LogLikelihood
        Of a model that holds them.
    settings : dict
        How they were found in it.
    kept : xarray.Dataset
        From `kept_dataset`.
    represented : ndarray
    """

    loglik: LogLikelihood
    settings: Settings
    kept: xr.Dataset
    represented: np.ndarray

    @classmethod
    def of(cls, coreset: WeightedRows) -> Self:
        """Extract the units of a coreset.

        Raises
        ------
        CoresetError
            If it was read without its model.
        UnsupportedModelError
            See `kept_units`.
        """
        loglik = required_likelihood(coreset)
        kept = kept_dataset(loglik, chosen_rows(coreset), coreset.weights)
        if coreset.data is not None:
            represented = coreset.data[REPRESENTED].to_numpy()
        else:  # all of its model that have rows
            units = as_units(loglik.observations).source
            labels = as_index(units.rows.snapshot.whole.coords[kept.attrs["dim"]])
            represented = np.array(texts_of(labels[units.levels]))
        return cls(loglik=loglik, settings=coreset.settings, kept=kept, represented=represented)

    @classmethod
    def of_rows(cls, model: pm.Model, wanted: RowsToRead, dim: str) -> Self:
        """Find the units of new rows along a dim, with nodes where those of a coreset are.

        Raises
        ------
        InvalidDataError
            If they are of one level only.
        """
        if len(model.coords.get(dim) or "..") == 1:
            raise InvalidDataError(
                f"The new rows are of one level of {dim!r} only, from which the model does not "
                "show what belongs to a level: add rows of other levels, or the label of a level "
                "without rows.",
                topic="the-data-and-the-model",
            )
        filled, inside = with_rows_of_units(model, wanted)
        loglik = LogLikelihood(inside.found_in(filled))
        every = loglik.in_memory.all
        kept = kept_dataset(loglik, every, every.case_weights)
        represented = np.array(texts_of(kept["label"].to_numpy()))
        return cls(loglik=loglik, settings=wanted.settings, kept=kept, represented=represented)

    @property
    def dim(self) -> str:
        """Along which the units have their labels."""
        return str(self.kept.attrs["dim"])

    @property
    def model(self) -> pm.Model:
        """The model that holds them."""
        found: pm.Model = as_units(self.loglik.observations).source.rows.snapshot.whole
        return found

    @property
    def weights(self) -> np.ndarray:
        """How many units each represents."""
        return self.kept["weight"].to_numpy()


@dataclass(frozen=True, kw_only=True, eq=False)
class UnitsTogether:
    """Units of several parts in one model, with nodes for the posterior of all.

    Parameters
    ----------
    loglik : LogLikelihood
        Its rows in memory are the units of all parts, one part after the other; their base
        weights are those of the parts.
    settings : dict
    represented : ndarray
        Labels of all units that these represent.
    model : pm.Model
        That they were put into.
    """

    loglik: LogLikelihood
    settings: Settings
    represented: np.ndarray
    model: pm.Model

    @classmethod
    def of(
        cls,
        model: pm.Model,
        parts: Sequence[UnitPart],
        *,
        tolerance: float,
        rng: np.random.Generator,
    ) -> Self:
        """Fill a model with the units of some parts.

        Parameters
        ----------
        model : pm.Model
            With any data.
        parts : sequence of UnitPart
        tolerance : float
            In nats; nodes may use up a tenth of it.
        rng : numpy.random.Generator

        Raises
        ------
        InvalidDataError
            If a level is in several parts, or the parts are of different models.
        UnsupportedModelError
            If no nodes serve for the units of all parts.
        """
        represented = _apart(parts)
        _require_same_variables(parts)
        filled, names = model_of_units(model, [part.kept for part in parts]), _names(parts[0])
        weights = np.concatenate([part.weights for part in parts])
        wanted = replace(RowsToRead(**parts[0].settings), units=None, integrate=names)
        wanted = replace(wanted, collapse=False, case_weights=weights)
        units, start = unit_model(filled, names, wanted.of_rows), 0
        for part in parts:
            at = part.settings["units"]
            assert at  # as they are units
            own = LogLikelihood(units_at(units, at))
            stop = start + part.kept.sizes["unit"]
            found = own.in_memory.take(slice(start, stop))
            known = part.loglik.in_memory.at(part.kept["position"].to_numpy())
            require_same_densities((part.loglik, known), (own, found), _REMEDY)
            start = stop
        found_of = integrated_out(
            filled, wanted, tolerance=tolerance, rng=rng, key=random_key(rng.spawn(1)[0])
        )
        assert found_of is not None  # as they are named
        loglik, reading = found_of
        return cls(loglik=loglik, settings=reading.settings, represented=represented, model=model)

    def kept(self, positions: np.ndarray, weights: np.ndarray) -> xr.Dataset:
        """Return some of the units with their data, and the labels of all that are represented."""
        rows = self.loglik.in_memory.at(positions)
        kept = kept_dataset(self.loglik, rows, weights)
        return kept.assign({REPRESENTED: ("label of unit", self.represented)})

    def alone(self, chosen: Solution, n_observations: int) -> Fields:
        """Return the fields of a coreset of some of the units, of which the others are gone.

        Parameters
        ----------
        chosen : Solution
        n_observations : int
            Number of all units.
        """
        numbers = np.arange(len(chosen.rows))
        kept = self.kept(chosen.rows.positions, chosen.weights)
        kept = kept.assign(position=("unit", numbers))
        wanted = RowsToRead(**self.settings)
        loglik = likelihood_of_units(self.model, kept, wanted, n_observations)
        return {
            "indices": numbers,
            "n_distinct": n_observations,
            "settings": self.settings,
            "loglikelihood": loglik,
            "data": kept,
            "quadratic": moved_to(loglik, chosen.quadratic, self.loglik),
        }

    def carried_over(self, coreset: WeightedRows) -> Quadratic | None:
        """Return the quadratic of a coreset in the coefficients of this model."""
        return moved_to(self.loglik, coreset.quadratic, required_likelihood(coreset))


def _names(part: UnitPart) -> list[str]:
    return list(part.loglik.observations.integrated)


def _apart(parts: Sequence[UnitPart]) -> np.ndarray:
    """Return the labels of all units that are represented, each by one part only."""
    kinds, dim = [kind_of(as_index(part.kept["label"].to_numpy())) for part in parts], parts[0].dim
    if len(set(kinds)) > 1:
        raise InvalidDataError(
            f"The labels of {dim!r} are {kinds[0]} in one part and {kinds[1]} in the other, so "
            "that levels that come again would not be known: give both labels of one kind.",
            topic="the-data-and-the-model",
        )
    every = np.concatenate([part.represented for part in parts])
    labels, counts = np.unique(every, return_counts=True)
    if (counts > 1).any():
        twice = labels[counts > 1]
        raise InvalidDataError(
            f"The parts have {counted(len(twice), 'level')} of {dim!r} in common, such as "
            f"{str(twice[0])!r}: rows of one level depend on each other through its variables, "
            "and must come together. Leave these levels out, build a coreset of all rows of all "
            "levels, or give the levels labels of their own if they are others.",
            topic="the-data-and-the-model",
        )
    return labels


def _require_same_variables(parts: Sequence[UnitPart]) -> None:
    """Raise if parts have other shared variables, or differ in data that all units share."""
    first, *others = parts
    own = as_units(first.loglik.observations)
    for other in others:
        found = as_units(other.loglik.observations)
        if own.integrated != found.integrated or own.shapes != found.shapes:
            one, two = (", ".join(f"{n!r} {s}" for n, s in o.shapes.items()) for o in (own, found))
            raise InvalidDataError(
                f"The variables of all units are {two}, but in the coreset's model {one}. {_REMEDY}"
            )
        refuse_other_data(own.source, found.source)
