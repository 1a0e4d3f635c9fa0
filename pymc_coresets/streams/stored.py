"""What a stream gives away: its coreset, and its state, from which it goes on as it was."""

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, replace
from hashlib import blake2b
from typing import Any

import numpy as np
import pymc as pm
import xarray as xr

from pymc_coresets.coreset import Coreset
from pymc_coresets.exceptions import CoresetError, InvalidDataError, InvalidOptionError, warn_user
from pymc_coresets.potentials.backends.evaluator import Jax
from pymc_coresets.potentials.evaluation import LogLikelihood
from pymc_coresets.potentials.kept_rows import columns_of_dataset, kept_dataset, rows_of_dataset
from pymc_coresets.potentials.of_model import RowsToRead, Settings, template_of_rows
from pymc_coresets.potentials.sameness import Probe
from pymc_coresets.reading.draws import Draws
from pymc_coresets.rows.passes import AbsentRows, Look
from pymc_coresets.rows.values import Rows
from pymc_coresets.solving.solution import Solution
from pymc_coresets.storage import history_dataset
from pymc_coresets.streams.growth import Beginning, Growth, Reason, StreamOptions, StreamState

_NOTICEABLE = 1.0  # nats: a coreset further away deserves a warning
_GONE = (
    "The rows of this stream were seen once and are gone: the coreset can be sampled, but this "
    "needs all of them. coreset.objective, measured against their exact sum at draws that chose "
    "nothing, and stream.coverage are what can be said without them. If the rows can be read "
    "again, in the same order, store the coreset and read it with Coreset.from_netcdf(path, model, "
    "rows=open_rows(...))."
)
_COUNTS: Mapping[str, Callable[[Any], Any]] = {
    "n_rows": int,
    "total_weight": float,
    "n_chunks": int,
    "pilot_weight": float,
    "mass": float,
    "scale": float,
}
_PROBES = 4  # draws, and rows, at which the model is compared with the stream's
_OPTIONS, _SETTINGS, _DIGEST = "options", "settings", "digest"
_AS_STORED = {"f": "<f8", "i": "<i8", "u": "<i8", "b": "<i8"}  # formats have types of their own
_GIVE = "Give what CoresetStream.state() returned, as it was."


def rows_gone(n_rows: int = 0, total_weight: float = 0.0) -> AbsentRows:
    """Return the rows of a stream, as those who ask for them find them.

    Examples
    --------
    >>> rows_gone(10, 10.0).n_rows
    10
    """
    return AbsentRows(n_rows, total_weight, _GONE)


def chosen_coreset(growth: Growth, state: StreamState, settings: Settings) -> Coreset:
    """Choose weighted rows that stand for all that a stream has seen: `CoresetStream.coreset`."""
    options = growth.options
    solution = growth.choose(state)
    objective = solution.objective + state.inherited_objective
    if not objective <= max(_NOTICEABLE, options.tolerance):
        warn_user(
            f"The coreset is {objective:.3g} nats from the rows of the stream at its "
            f"draws: allow a larger size than {options.size}, or more draws than "
            f"{options.n_draws}, or begin with a larger pilot."
        )
    loglik = growth.template.reading(rows_gone(state.n_rows, state.total_weight))
    one_epoch = len(state.beginnings) == 1
    return Coreset(
        indices=solution.rows.positions,
        weights=solution.weights,
        n_observations=round(state.total_weight),
        n_distinct=state.n_rows,
        method="stream",
        weighting="the pilot's posterior" if one_epoch else "the last epoch's draws",
        status=solution.status.value,
        objective=objective,
        random_seed=options.seed,
        history=history_dataset(solution.history, _figures(solution, state)),
        settings=settings,
        loglikelihood=loglik,
        data=kept_dataset(loglik, solution.rows, solution.weights),
    )


def _figures(solution: Solution, state: StreamState) -> dict[str, Any]:
    found = state.coverage
    return {
        "n_chunks": state.n_chunks,
        "n_epochs": len(state.beginnings),
        "epochs": "; ".join(
            f"from row {one.n_rows}: {one.reason.value}"
            + (f", objective of the coreset before {one.objective:.3g}" if one.size else "")
            for one in state.beginnings
        ),
        "inherited_objective": state.inherited_objective,
        "n_candidates": len(state.candidates),
        "n_draws": found.n_draws,
        "n_passes": 1,
        "draws_distance": found.displacement.distance,
        "draws_width": found.displacement.width,
        "pareto_khat": found.pareto_khat,
        "psis_ess": found.ess,
        "norm_total": state.seen.norm_total,
        "size": len(solution.rows),
    }


def tree_of_state(state: StreamState, growth: Growth, settings: Settings) -> xr.DataTree:
    """Return all that is kept of a stream, without the model."""
    rows = growth.template.reading(AbsentRows(state.n_rows, state.total_weight))
    seen = state.seen
    probe = _probe(growth, state.draws, seen.candidates)
    stream = xr.Dataset(
        {
            "origin": ("draw", state.origin),
            "total": ("draw", seen.total),
            "prior_probe": ("probed_draw", probe.prior),
            "row_probe": (("probed_row", "probed_draw"), probe.rows),
            "known": ("known_chunk", np.array(state.known, dtype=np.int64)),
        },
        attrs={name: getattr(state, name) for name in _COUNTS}
        | {
            "norm_total": seen.norm_total,
            _OPTIONS: json.dumps(asdict(growth.options)),
            _SETTINGS: json.dumps(settings),
            "beginnings": json.dumps(
                [asdict(one) | {"reason": one.reason.name} for one in state.beginnings]
            ),
        },
    )
    draws = {
        name: (("draw", *(f"{name}_dim_{i}" for i in range(values.ndim - 1))), values)
        for name, values in state.draws.values.items()
    }
    groups = {
        "stream": stream,
        "draws": xr.Dataset(draws),
        "candidates": kept_dataset(rows, seen.candidates, seen.keys),
    }
    if len(state.summary):
        groups["summary"] = kept_dataset(rows, state.summary, state.summary_weights)
    stream.attrs[_DIGEST] = digest_of(groups)
    return xr.DataTree.from_dict(groups)


def digest_of(groups: Mapping[str, xr.Dataset]) -> str:
    """Return a digest of what the groups of a tree hold, in whatever format they were stored."""
    digest = blake2b(digest_size=32)
    for group, dataset in sorted(groups.items()):
        attrs = {n: v for n, v in dataset.attrs.items() if n != _DIGEST}
        numbers = {n: v if isinstance(v, str) else float(v) for n, v in attrs.items()}
        digest.update(json.dumps([group, numbers], sort_keys=True).encode())
        for name in sorted(map(str, dataset.variables)):
            values = dataset[name].to_numpy()
            digest.update(json.dumps([name, dataset[name].dims, values.shape]).encode())
            stored = _AS_STORED.get(values.dtype.kind)
            texts = json.dumps(values.tolist(), default=str) if stored is None else ""
            digest.update(values.astype(stored).tobytes() if stored else texts.encode())
    return digest.hexdigest()


def template_of_tree(
    tree: xr.DataTree, model: pm.Model, *, backend: str | Jax = "numba"
) -> tuple[LogLikelihood, StreamOptions, Settings]:
    """Read the model again, and how the stream was begun.

    Raises
    ------
    InvalidOptionError
        If it is no tree.
    InvalidDataError
        If the tree is no stream's, or the model not the stream's.
    """
    if not isinstance(tree, xr.DataTree):
        raise InvalidOptionError(
            f"state is a {type(tree).__name__}, but must be the DataTree that "
            "CoresetStream.state() returned."
        )
    with _malformed():
        _require_intact(tree)
        attrs = tree["stream"].attrs
        options = StreamOptions(**json.loads(attrs[_OPTIONS]))
        settings: Settings = json.loads(attrs[_SETTINGS])
        columns = columns_of_dataset(tree["candidates"].to_dataset())
        wanted = RowsToRead(**settings)
    template = template_of_rows(model, columns, replace(wanted, backend=backend))
    return template, options, settings


def state_of_tree(tree: xr.DataTree, growth: Growth) -> StreamState:
    """Return the state that such a tree holds.

    Raises
    ------
    InvalidDataError
        If the tree holds no state; if the model has other free variables, data containers, priors
        or another likelihood than the stream's.
    """
    with _malformed():
        state, probe = _read(tree, growth)
        _require_sound(state)
    _require_same(probe, _probe(growth, state.draws, state.seen.candidates))
    return state


def _read(tree: xr.DataTree, growth: Growth) -> tuple[StreamState, Probe]:
    """Return the state, and the densities of the stream's own model."""
    stream, kept = tree["stream"].to_dataset(), tree["candidates"].to_dataset()
    attrs, observations = stream.attrs, growth.template.observations
    candidates = rows_of_dataset(observations, kept)
    summary, weights = candidates.take(slice(0, 0)), np.zeros(0)
    if "summary" in tree.children:
        stored = tree["summary"].to_dataset()
        summary = rows_of_dataset(observations, stored)
        weights = stored["weight"].to_numpy()
    draws = {str(n): v.to_numpy() for n, v in tree["draws"].to_dataset().data_vars.items()}
    state = StreamState(
        **{name: kind(attrs[name]) for name, kind in _COUNTS.items()},
        draws=Draws.of(draws, growth.template.shapes),
        origin=stream["origin"].to_numpy(),
        summary=summary,
        summary_weights=weights,
        seen=Look(
            total=stream["total"].to_numpy(),
            norm_total=float(attrs["norm_total"]),
            candidates=candidates,
            keys=kept["weight"].to_numpy(),
        ),
        beginnings=tuple(
            Beginning(**one | {"reason": Reason[one["reason"]]})
            for one in json.loads(attrs["beginnings"])
        ),
        known=tuple(stream["known"].to_numpy().tolist()),
    )
    return state, Probe(rows=stream["row_probe"].to_numpy(), prior=stream["prior_probe"].to_numpy())


@contextmanager
def _malformed() -> Iterator[None]:
    """Say so where a tree does not hold what a state does."""
    try:
        yield
    except CoresetError:
        raise
    except (KeyError, ValueError, TypeError, AttributeError, IndexError) as error:
        raise InvalidDataError(f"This is not the state of a stream: {error}. {_GIVE}") from error


def _require_intact(tree: xr.DataTree) -> None:
    groups = {name: node.to_dataset(inherit=False) for name, node in tree.children.items()}
    if groups["stream"].attrs[_DIGEST] != digest_of(groups):
        raise InvalidDataError(f"The state of the stream was altered after state(). {_GIVE}")


def _require_sound(state: StreamState) -> None:
    """Refuse numbers that no stream has, whatever the digest says of them."""
    seen, weights = state.seen, state.summary_weights
    masses = np.array([state.total_weight, state.pilot_weight, state.mass])
    lengths = np.array([state.scale, seen.norm_total])
    rows = (seen.candidates, state.summary)
    sound = {
        "sums": all(
            sums.shape == (state.draws.n_draws,) and np.isfinite(sums).all()
            for sums in (state.origin, seen.total)
        ),
        "masses": (masses > 0).all() and np.isfinite(masses).all(),
        "lengths": (lengths >= 0).all() and np.isfinite(lengths).all(),
        "keys": len(seen.keys) == len(seen.candidates) and np.isfinite(seen.keys).all(),
        "weights": len(weights) == len(state.summary) and bool((weights > 0).all()),
        "rows": all(
            (np.diff(r.positions, prepend=-1, append=state.n_rows) > 0).all() for r in rows
        ),
        "epochs": len(state.beginnings) > 0,
    }
    for name, fine in sound.items():
        if not fine:
            raise ValueError(f"its {name} make no sense")


def _probe(growth: Growth, draws: Draws, candidates: Rows) -> Probe:
    some, rows = draws.take(slice(0, _PROBES)), candidates.take(slice(0, _PROBES))
    return Probe.of(growth.template, rows, some, growth.prior)


def _require_same(kept: Probe, found: Probe) -> None:
    """Refuse a model with other densities than those that went into the stream's sums."""
    same_rows, same_prior = kept.same(found)
    for same, what in ((same_prior, "priors"), (same_rows, "likelihoods")):
        if not same:
            raise InvalidDataError(
                f"The model has other {what} than the stream's: its sums would mix the two. "
                "Give the model that the stream was begun with."
            )
