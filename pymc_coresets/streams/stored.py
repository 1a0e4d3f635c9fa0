"""The state of a stream as a tree of datasets, from which it goes on as if it had not stopped."""

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Any

import numpy as np
import pymc as pm
import xarray as xr

from pymc_coresets.exceptions import InvalidDataError, InvalidOptionError
from pymc_coresets.potentials.backends.choice import Jax
from pymc_coresets.potentials.evaluation import LogLikelihood
from pymc_coresets.potentials.from_rows import template_of_rows
from pymc_coresets.potentials.kept_rows import columns_of_dataset, kept_dataset, rows_of_dataset
from pymc_coresets.potentials.sameness import Probe
from pymc_coresets.reading.draws import Draws
from pymc_coresets.rows.source import LookPart
from pymc_coresets.rows.streamed import AbsentRows
from pymc_coresets.rows.values import Rows
from pymc_coresets.storage import Settings
from pymc_coresets.streams.growth import (
    Beginning,
    Epoch,
    Growth,
    Reason,
    StreamOptions,
    StreamState,
)

__all__ = ["state_of_tree", "template_of_tree", "tree_of_state"]

_COUNTS: Mapping[str, Callable[[Any], Any]] = {
    "n_rows": int,
    "total_weight": float,
    "n_chunks": int,
    "pilot_weight": float,
}
_OF_EPOCH = ("mass", "scale")
_PROBES = 4  # draws, and rows, at which the model is compared with the stream's
_OPTIONS, _SETTINGS = "options", "settings"


def tree_of_state(state: StreamState, growth: Growth, settings: Settings) -> xr.DataTree:
    """Return all that is kept of a stream, without the model."""
    rows = growth.template.reading(AbsentRows(state.n_rows, state.total_weight))
    epoch, seen = state.epoch, state.seen
    probe = _probe(growth, epoch.draws, seen.candidates)
    stream = xr.Dataset(
        {
            "origin": ("draw", epoch.origin),
            "total": ("draw", seen.total),
            "prior_probe": ("probed_draw", probe.prior),
            "row_probe": (("probed_row", "probed_draw"), probe.rows),
        },
        attrs={name: getattr(state, name) for name in _COUNTS}
        | {name: getattr(epoch, name) for name in _OF_EPOCH}
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
        for name, values in epoch.draws.values.items()
    }
    groups = {
        "stream": stream,
        "draws": xr.Dataset(draws),
        "candidates": kept_dataset(rows, seen.candidates, seen.keys),
    }
    if len(state.summary):
        groups["summary"] = kept_dataset(rows, state.summary, state.summary_weights)
    return xr.DataTree.from_dict(groups)


def template_of_tree(
    tree: xr.DataTree, model: pm.Model, *, backend: Jax | None = None
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
    try:
        attrs, _ = tree["stream"].attrs, tree["draws"]
        options = StreamOptions(**json.loads(attrs[_OPTIONS]))
        settings: Settings = json.loads(attrs[_SETTINGS])
        columns = columns_of_dataset(tree["candidates"].to_dataset())
    except (KeyError, ValueError, TypeError) as error:
        raise InvalidDataError(
            f"This is not the state of a stream: {error}. Give what CoresetStream.state() returned."
        ) from error
    where: dict[str, Any] = {name: settings[name] for name in ("observed", "dim")}
    template = template_of_rows(model, columns, **where, backend=backend)
    return template, options, settings


def state_of_tree(tree: xr.DataTree, growth: Growth) -> StreamState:
    """Return the state that such a tree holds.

    Raises
    ------
    InvalidDataError
        If the model has other free variables, data containers, priors or another likelihood than
        the stream's.
    """
    stream, kept = tree["stream"].to_dataset(), tree["candidates"].to_dataset()
    attrs, template = stream.attrs, growth.template
    observations = template.observations
    candidates = rows_of_dataset(observations, kept)
    summary, weights = candidates.take(slice(0, 0)), np.zeros(0)
    if "summary" in tree.children:
        stored = tree["summary"].to_dataset()
        summary = rows_of_dataset(observations, stored)
        weights = stored["weight"].to_numpy()
    draws = {str(n): v.to_numpy() for n, v in tree["draws"].to_dataset().data_vars.items()}
    values = Draws.of(draws, template.shapes)
    kept_probe = Probe(rows=stream["row_probe"].to_numpy(), prior=stream["prior_probe"].to_numpy())
    _require_same(kept_probe, _probe(growth, values, candidates))
    return StreamState(
        **{name: kind(attrs[name]) for name, kind in _COUNTS.items()},
        epoch=Epoch(
            draws=values,
            origin=stream["origin"].to_numpy(),
            **{name: float(attrs[name]) for name in _OF_EPOCH},
        ),
        summary=summary,
        summary_weights=weights,
        seen=LookPart(
            total=stream["total"].to_numpy(),
            norm_total=float(attrs["norm_total"]),
            candidates=candidates,
            keys=kept["weight"].to_numpy(),
        ),
        beginnings=tuple(
            Beginning(**one | {"reason": Reason[one["reason"]]})
            for one in json.loads(attrs["beginnings"])
        ),
    )


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
