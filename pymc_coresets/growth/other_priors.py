"""The same rows and weights under other priors."""

import math
from collections.abc import Iterable, Iterator
from dataclasses import replace

import numpy as np
import pymc as pm

from pymc_coresets.ancestry import Ancestry
from pymc_coresets.diagnostics.known_posterior import Proposal, has_several
from pymc_coresets.exceptions import InvalidDataError
from pymc_coresets.growth.reductions import moved_to
from pymc_coresets.numerics import agree
from pymc_coresets.reading.draws import Draws
from pymc_coresets.reading.quadratic import Quadratic
from pymc_coresets.reading.units.joined_units import kept_units, model_of_units
from pymc_coresets.reading.units.observations_of_units import UnitObservations
from pymc_coresets.reading.user_model import copy_with_rows, settable_data
from pymc_coresets.rowlogp.evaluation import LogLikelihood
from pymc_coresets.rowlogp.kept_rows import columns_of_dataset, for_other_priors, rows_of_dataset
from pymc_coresets.rowlogp.of_model import (
    RowsToRead,
    full_model,
    likelihood_of_model,
    likelihood_of_prototypes,
    verify_form,
)
from pymc_coresets.rowlogp.rest import refuse_unweighted
from pymc_coresets.rowlogp.verification import points_near, verify_rows
from pymc_coresets.rows.passes import AbsentRows, RowBlocks
from pymc_coresets.rows.streamed import ExtendedRows, StreamedRows
from pymc_coresets.rows.values import Rows
from pymc_coresets.weighted_rows import WeightedRows, holds_rows, of_model, required_likelihood

_REMEDY = "with_model() changes priors only: build another coreset."


def with_model[C: WeightedRows](coreset: C, model: pm.Model) -> C:
    """Return the same rows and weights under other priors, see `Coreset.with_model`."""
    old, model, rng = required_likelihood(coreset), full_model(model), np.random.default_rng(0)
    wanted, kept = RowsToRead(**coreset.settings), coreset.data
    refuse_unweighted(old.observations)
    if isinstance(old.observations, UnitObservations):
        model, wanted = _with_units_of(old.observations, model, wanted, coreset)
        new = likelihood_of_model(model, replace(wanted, collapse=old.collapse), rng=rng)
        _require_same(old, new, _all_rows(old, new), _points(old, new, rng))
        if kept is not None:
            kept = for_other_priors(new.observations, kept)
        if isinstance(old.source, AbsentRows):
            new = new.reading(old.source)
    elif kept is None:
        new = likelihood_of_model(model, replace(wanted, collapse=old.collapse), rng=rng)
        _require_same(old, new, _all_rows(old, new), _points(old, new, rng))
    else:
        loglikelihood = likelihood_of_prototypes(model, columns_of_dataset(kept), wanted)
        verify_rows(loglikelihood, rng=rng)
        points = _points(old, loglikelihood, rng)
        rows = rows_of_dataset(old.observations, kept)
        kept = for_other_priors(loglikelihood.observations, kept)
        others = rows_of_dataset(loglikelihood.observations, kept)
        _require_same(old, loglikelihood, [(rows, others)], points)
        new = loglikelihood.reading(_read_by(loglikelihood, old))
    verify_form(new)
    quadratic, earlier = (moved_to(new, each, old) for each in (coreset.quadratic, coreset.earlier))
    found = Ancestry.of(coreset.history.attrs, coreset.n_observations, coreset.objective)
    return replace(
        coreset,
        loglikelihood=new,
        data=kept,
        objective=math.nan,
        status="Rows and weights were chosen under other priors: sample() it, and check() the "
        "draws.",
        history=coreset.history.assign_attrs(found.unmeasured.attrs),
        proposal=_weighed_anew(coreset.proposal, old, new, quadratic),
        # Diagnostics at the old posterior do not apply to this one.
        certificate=None,
        modes=None,
        built_from=None,
        quadratic=quadratic,
        earlier=earlier,
    )


def _with_units_of(
    old: UnitObservations, model: pm.Model, wanted: RowsToRead, coreset: WeightedRows
) -> tuple[pm.Model, RowsToRead]:
    """Put the units of a coreset into a model, if its own model is not the user's."""
    units, weights = old.source, old.source.case_weights
    if holds_rows(coreset):
        model = model_of_units(model, [kept_units(units, units.levels)])
    elif units.filled:
        held, n_rows = settable_data(units.rows.snapshot.whole), units.rows.n_obs
        given, along = settable_data(model), [n for n in held if held[n].shape[:1] == (n_rows,)]
        if any(name in given and len(given[name]) != n_rows for name in along):
            model = copy_with_rows(model, {n: held[n] for n in along if n in given})
    return model, replace(wanted, case_weights=weights, filled=units.filled)


def _weighed_anew(
    known: Proposal[Draws] | None,
    old: LogLikelihood,
    new: LogLikelihood,
    quadratic: Quadratic | None,
) -> Proposal[Draws] | None:
    """Re-weight draws for the posterior under other priors of the same variables, or return None.

    Also None if there are several modes, whose weights other priors may change.
    """
    one, other = old.observations.space, new.observations.space
    if known is None or one.columns.keys() != other.columns.keys():
        return None
    if has_several(known.modes):
        return None
    if any(own.shape != other.columns[name].shape for name, own in one.columns.items()):
        return None
    where = np.concatenate([one.columns[name].ravel() for name in other.columns])
    x = one.free(known.draws)
    there = other.constrain(x[:, where]).values
    if not all(np.allclose(own, there[name]) for name, own in known.draws.values.items()):
        return None  # the bounds differ
    moved = of_model(known, list(one.columns), new, quadratic)
    change = new.rest.values(x[:, where]) - old.rest.values(x)
    return None if moved is None else moved.weighed(change)


def _points(old: LogLikelihood, new: LogLikelihood, rng: np.random.Generator) -> Draws:
    """Return points near both models' initial points, for the likelihoods' variables."""
    if old.shapes != new.shapes:
        one, other = (
            ", ".join(f"{name!r} of shape {shape}" for name, shape in sorted(each.shapes.items()))
            for each in (old, new)
        )
        raise InvalidDataError(
            f"The likelihood depends on {other}, but that of the coreset's model on {one}. "
            f"{_REMEDY}"
        )
    both = [points_near(each.observations.space, rng).values for each in (old, new)]
    return Draws({n: np.concatenate([values[n] for values in both]) for n in old.shapes})


def _all_rows(old: LogLikelihood, new: LogLikelihood) -> Iterator[tuple[Rows, Rows]]:
    """Return all rows of two models that hold their rows, in blocks."""
    n_rows = [each.observations.n_obs for each in (old, new)]
    if n_rows[0] != n_rows[1]:
        raise InvalidDataError(
            f"The model has {n_rows[1]:,} observations, but the coreset represents {n_rows[0]:,}: "
            "extend() adds new ones."
        )
    one, other = (LogLikelihood(each.observations).in_memory for each in (old, new))
    return zip(one.blocks(2**16), other.blocks(2**16), strict=True)


def _require_same(
    old: LogLikelihood, new: LogLikelihood, pairs: Iterable[tuple[Rows, Rows]], points: Draws
) -> None:
    """Compare the log-likelihoods of the same rows in two models."""
    for rows, others in pairs:
        if not np.array_equal(rows.positions, others.positions):
            raise InvalidDataError(f"Missing values are in other rows than before. {_REMEDY}")
        values = old.matrix(points, rows, finite=False), new.matrix(points, others, finite=False)
        same = agree(*values, nan=True).all(axis=1)
        if same.all():
            continue
        n = int(np.argmin(same))
        which = slice(n, n + 1)
        one = old.observations.by_name(rows.take(which))
        other = new.observations.by_name(others.take(which))
        differing = [
            name
            for name in sorted(one.keys() & other.keys())
            if not np.array_equal(one[name], other[name], equal_nan=one[name].dtype.kind == "f")
        ]
        names = differing or [term.name for term in new.observations.terms]
        what = ", where the data differ" if differing else ""
        raise InvalidDataError(
            f"The likelihood differs from that of the coreset's model: the log-likelihood of "
            f"{old.source.place(int(rows.positions[n]))} has other values{what} in "
            f"{', '.join(map(repr, names))}. {_REMEDY}"
        )


def _read_by(new: LogLikelihood, old: LogLikelihood) -> RowBlocks:
    """Return the source of the old rows, with its arrays in the order of another model."""
    source, columns = old.source, {row.name: row.values.dtype for row in new.observations.rows}
    if isinstance(source, StreamedRows):
        return replace(source, columns=columns)
    if isinstance(source, ExtendedRows):
        arrays = old.observations.by_name(source.old)
        held = replace(source.old, arrays=tuple(arrays[name] for name in columns))
        return source.holding(held, columns)
    return source
