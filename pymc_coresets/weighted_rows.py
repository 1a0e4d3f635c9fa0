"""The fields of a coreset, which all that is done with one goes by; its draws in other models."""

import json
from collections.abc import Mapping, MutableMapping, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any, cast

import numpy as np
import xarray as xr
from scipy import sparse

from pymc_coresets.diagnostics.judging import TOLERANCE, Certificate
from pymc_coresets.diagnostics.known_posterior import Modes, Proposal
from pymc_coresets.diagnostics.verdicts import Verdict
from pymc_coresets.exceptions import CoresetError
from pymc_coresets.glm.control_variates.hierarchy import ConditionalGaussian, Hierarchy
from pymc_coresets.reading.draws import Draws
from pymc_coresets.reading.quadratic import Quadratic
from pymc_coresets.reading.units.labels import texts_of
from pymc_coresets.reading.units.observations_of_units import UnitObservations
from pymc_coresets.rowlogp.evaluation import LogLikelihood
from pymc_coresets.rowlogp.kept_rows import REPRESENTED, Digests, rows_of_dataset
from pymc_coresets.rowlogp.of_model import Settings
from pymc_coresets.rows.streamed import ExtendedRows
from pymc_coresets.rows.values import Rows
from pymc_coresets.sampling.factors.cholesky import CholeskyFactor, DenseFactor, factor_of
from pymc_coresets.sampling.normal import Mixture, Normal, Tails
from pymc_coresets.sampling.steps.near_normal import GriddedMarginals, Table
from pymc_coresets.sampling.steps.starts import around_draws

_VERSION = 4  # of the form in files
_KINDS: dict[str, type[Any]] = {
    kind.__name__: kind
    for kind in (
        GriddedMarginals,
        DenseFactor,
        Hierarchy,
        Mixture,
        Normal,
        ConditionalGaussian,
        Quadratic,
        Table,
        Tails,
    )
}
#: Fields that are functions or graphs; and what is found out again.
_OF_A_MODEL, _FOUND_AGAIN = ("prior", "coefficients", "interface"), ("decomposed",)
_OF_SPARSE = ("data", "indices", "indptr")


#: Fields of a coreset, by name.
type Fields = dict[str, Any]


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class WeightedRows:
    """Weighted rows, with what is known of them: the fields of a `Coreset`, which explains them.

    Rooms below the coreset's own go by these.
    """

    indices: np.ndarray
    weights: np.ndarray
    n_observations: int
    n_distinct: int
    method: str
    weighting: str
    status: str
    objective: float
    random_seed: int | None
    history: xr.Dataset
    settings: Settings
    loglikelihood: LogLikelihood | None
    built_from: Digests | None = None
    proposal: Proposal[Draws] | None = None
    certificate: Certificate | None = None
    modes: Modes | None = None
    quadratic: Quadratic | None = None
    earlier: Quadratic | None = None
    data: xr.Dataset | None = None
    progressbar: bool = True

    @property
    def tolerance(self) -> float:
        """Symmetrised KL divergence that it was asked for, in nats; 0.01 by default."""
        return TOLERANCE if self.certificate is None else self.certificate.tolerance


def required_likelihood(coreset: WeightedRows) -> LogLikelihood:
    """Return the log-likelihoods of the rows that a coreset was chosen from.

    Raises
    ------
    CoresetError
        If it was read without its model.
    """
    if coreset.loglikelihood is None:
        raise CoresetError(
            "This coreset was read without its model: read it again with "
            "Coreset.from_netcdf(path, model=...)."
        )
    return coreset.loglikelihood


def holds_rows(coreset: WeightedRows) -> bool:
    """Whether a coreset has the data of its rows itself, as its model lacks them."""
    return coreset.data is not None


def verdict_of(coreset: WeightedRows) -> Verdict | None:
    """Return the verdict of a coreset's certificate; None if it has none."""
    return None if coreset.certificate is None else coreset.certificate.verdict


def chosen_rows(coreset: WeightedRows) -> Rows:
    """Return the rows of a coreset with their data.

    Raises
    ------
    CoresetError
        If it was read without its model.
    """
    loglik = required_likelihood(coreset)
    if coreset.data is None:
        return loglik.collapsed(collapse=False).source.at(coreset.indices)
    if loglik.observations.integrated:
        return loglik.in_memory.at(coreset.indices)
    return rows_of_dataset(loglik.observations, coreset.data)


def has_all_rows(coreset: WeightedRows) -> bool:
    """Whether the posterior of a coreset is that of all rows."""
    loglik = required_likelihood(coreset)
    if represents_others(loglik) or loglik.n_rows != len(coreset.indices):
        return False
    every = loglik.all_rows
    pairs = [(every.positions, coreset.indices), (every.case_weights, coreset.weights)]
    if holds_rows(coreset):
        pairs += zip(every.arrays, chosen_rows(coreset).arrays, strict=True)
    return all(np.array_equal(one, other) for one, other in pairs)


def loglik_of_earlier(coreset: WeightedRows, draws: Draws) -> np.ndarray:
    """Return the log-likelihood at draws of the coreset that one was extended from: (n_draws,)."""
    if coreset.earlier is None:
        return np.zeros(draws.n_draws)
    return coreset.earlier.at_draws(required_likelihood(coreset).observations, draws)


def require_all_rows(coreset: WeightedRows) -> None:
    """Refuse where some of the rows that a coreset represents are gone."""
    loglik = required_likelihood(coreset)
    if not represents_others(loglik):
        return
    if loglik.observations.integrated:
        raise CoresetError(
            "This coreset represents units of which only some are left: for this, build a coreset "
            "of all of them."
        )
    raise CoresetError(
        "This coreset was extended without the old rows, of which only some are left: for this, "
        "store it, and read it with Coreset.from_netcdf(path, model, rows=...), where rows has the "
        "old ones and, after them, the new ones."
    )


def lost_levels(coreset: WeightedRows) -> Mapping[str, frozenset[str]]:
    """Return the labels of units that a coreset represents, but whose rows are gone, by their dim.

    Labels are text, see `texts_of`.
    """
    loglik, kept = required_likelihood(coreset), coreset.data
    if kept is None or not loglik.observations.integrated:
        return {}
    dim = str(kept.attrs["dim"])
    held = texts_of(loglik.observations.model.coords[dim] or ())
    return {dim: frozenset(map(str, kept[REPRESENTED].to_numpy())).difference(held)}


def represents_others(loglik: LogLikelihood) -> bool:
    """Whether some of the rows in memory represent others, which are gone."""
    own = loglik.observations
    of_units = isinstance(own, UnitObservations) and own.source.case_weights is not None
    return of_units or isinstance(loglik.source, ExtendedRows)


# -- draws in files --------------------------------------------------------------------------------


def stored_proposal(known: Proposal[Draws], loglik: LogLikelihood | None) -> xr.Dataset:
    """Return draws with their ratios and their distribution as the group of a file.

    Parameters
    ----------
    known : Proposal
    loglik : LogLikelihood, optional
        Of its model; without it, it was read from a file before.
    """
    values, arrays = known.draws.values, {"log_ratios": known.log_ratios}
    names = list(values) if loglik is None else list(loglik.observations.space.columns)
    arrays |= {f"draws.{i}": values[name] for i, name in enumerate(names)}
    form = {
        "version": _VERSION,
        "names": names,
        "around": _packed(known.around, "around", arrays),
        "has_modes": known.modes is not None,
    }
    data = {name: ([f"{name}.{i}" for i in range(a.ndim)], a) for name, a in arrays.items()}
    return xr.Dataset(data | {"form": ([], json.dumps(form))})


def restored_proposal(stored: xr.Dataset, modes: Modes | None) -> Proposal[Draws]:
    """Return what `stored_proposal` has stored, as yet without its model: see `of_model`.

    Parameters
    ----------
    stored : xarray.Dataset
    modes : Modes, optional
        Those of the coreset.

    Raises
    ------
    KeyError, ValueError, TypeError
        If something is missing or malformed, or was written by another version.
    """
    arrays = {str(name): array.to_numpy() for name, array in stored.data_vars.items()}
    form = json.loads(str(arrays.pop("form")))
    if form["version"] != _VERSION:
        raise ValueError(f"its draws have the form {form['version']}, of another version")
    if not all(np.isfinite(array).all() for array in arrays.values()):
        raise ValueError("its draws, or what they are from, are not finite")
    values = {name: arrays[f"draws.{i}"] for i, name in enumerate(form["names"])}
    if {len(own) for own in values.values()} != {len(arrays["log_ratios"])}:
        raise ValueError("it does not have one ratio for each of its draws")
    return Proposal(
        draws=Draws(values),
        log_ratios=arrays["log_ratios"],
        around=_unpacked(form["around"], arrays),
        modes=modes if form["has_modes"] else None,
    )


def _packed(thing: Any, name: str, arrays: MutableMapping[str, np.ndarray]) -> Any:  # noqa: ANN401
    """Describe a distribution for JSON; what is long goes to the arrays."""
    if thing is None or isinstance(thing, bool | int | float | str):
        return thing
    if isinstance(thing, np.ndarray):
        arrays[name] = thing
        return {"array": name}
    if sparse.issparse(thing):
        parts = {n: _packed(getattr(thing, n), f"{name}.{n}", arrays) for n in _OF_SPARSE}
        return {"sparse": parts, "shape": list(thing.shape)}
    if isinstance(thing, Mapping):
        numbered = {k: _packed(each, f"{name}.{k}", arrays) for k, each in thing.items()}
        return {"numbered": list(numbered.items())}
    if isinstance(thing, Sequence):
        return [_packed(each, f"{name}.{i}", arrays) for i, each in enumerate(thing)]
    if isinstance(thing, CholeskyFactor) and not isinstance(thing, DenseFactor):
        return {"factor of": _packed(thing.matrix, f"{name}.matrix", arrays)}
    kind = _KINDS[type(thing).__name__]
    kept = sorted(_names(kind) - {*_OF_A_MODEL, *_FOUND_AGAIN})
    own = {n: getattr(thing, n) for n in kept}
    parts = {n: _packed(part, f"{name}.{n}", arrays) for n, part in own.items()}
    return {"kind": type(thing).__name__, "fields": parts}


def _unpacked(form: object, arrays: Mapping[str, np.ndarray]) -> Any:  # noqa: ANN401
    if isinstance(form, list):
        return tuple(_unpacked(each, arrays) for each in form)
    if not isinstance(form, dict):
        return form
    if "array" in form:
        return arrays[form["array"]]
    if "numbered" in form:
        return {int(k): _unpacked(each, arrays) for k, each in form["numbered"]}
    if "sparse" in form:
        entries = tuple(_unpacked(form["sparse"][name], arrays) for name in _OF_SPARSE)
        return sparse.csr_array(entries, shape=tuple(form["shape"]))
    if "factor of" in form:
        return factor_of(_unpacked(form["factor of"], arrays))
    parts = {name: _unpacked(part, arrays) for name, part in form["fields"].items()}
    kind = _KINDS[form["kind"]]
    return kind(**parts, **dict.fromkeys(set(_OF_A_MODEL) & _names(kind)))


def _names(kind: type[object]) -> set[str]:
    return {field.name for field in fields(kind)} if is_dataclass(kind) else set()


# -- draws in models -------------------------------------------------------------------------------


def of_model(
    known: Proposal[Draws], names: Sequence[str], loglik: LogLikelihood, quadratic: Quadratic | None
) -> Proposal[Draws] | None:
    """Return draws of one model for another one, or for its own after a file.

    Parameters
    ----------
    known : Proposal
    names : sequence of str
        The variables of the model that they are of, in the order of its coordinates.
    loglik : LogLikelihood
        Of the other model.
    quadratic : Quadratic, optional
        That of the coreset, with the coefficients of the other model.

    Returns
    -------
    Proposal, or None
        None if the model has other variables.  If they come in another order, or the
        coefficients do, with a normal distribution around the draws; None if they are few.
    """
    space, around = loglik.observations.space, known.around
    if space.columns.keys() != set(names):
        return None
    is_same = list(space.columns) == list(names)
    if is_same and isinstance(around, ConditionalGaussian):
        is_same = quadratic is not None and quadratic.names == around.quadratic.names
        around = _with_functions(around, loglik, cast(Quadratic, quadratic)) if is_same else around
    if is_same:
        return replace(known, around=around)
    for near in around_draws(space.free(known.draws)):
        return replace(known, around=near)
    return None


def _with_functions(
    around: ConditionalGaussian, loglik: LogLikelihood, quadratic: Quadratic
) -> ConditionalGaussian:
    rest = loglik.functions.rest_beside(quadratic.graph)
    hierarchy = replace(around.hierarchy, prior=rest.slopes, coefficients=rest.coefficients)
    of_all = replace(cast(Quadratic, around.quadratic), interface=quadratic.graph)
    return replace(around, hierarchy=hierarchy, quadratic=of_all).laid_out
