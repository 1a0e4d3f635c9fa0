"""The log-likelihood of units, whose own variables are integrated out by nodes that move.

For unit g with variables z of q dimensions and log-density ``h_g(z; theta)``, their log-prior and
the log-likelihoods of the unit's rows,

    L_g(theta) = log sum_k exp(a_k - log |R_g| + h_g(z_gk; theta)),  z_gk = m_g + R_g^-T x_k,

with Gauss-Hermite nodes x_k, their weights in a_k, and m_g(theta) and ``R_g R_g'(theta)`` close to
the mode and the negative Hessian of h_g: a step of Newton's leads there from the mode at some theta
in the middle of the posterior.  Nodes that do not move are wrong by nats where a unit has many
rows, as theta moves its mode by more than its width; widths that do not change are wrong without
bound where the scale of the variables' prior goes to zero (adaptive quadrature: Liu and Pierce
1994, Biometrika 81; Pinheiro and Bates 1995).  A step is shortened, and widths are limited, only if
the density gains much less by it than its curvature says: many widths are right where the density
is almost normal, as it is in units of many rows, and by a prior of a small scale.  Between two
modes, or in a tail, the curvature may be close to zero, and its width says nothing.

The integral does not depend on where its nodes are, but for their error.  So gradients are those at
nodes that stay: ``grad L_g = E[grad h_g(z; theta) | y]``, Fisher's identity, by the same nodes.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple, cast

import numpy as np
import pytensor.tensor as pt
from pytensor.graph import Variable, clone_replace, graph_inputs, vectorize_graph
from pytensor.tensor import TensorVariable

from pymc_coresets.compat.pytensor_api import (
    checked_tensor,
    compiling,
    disconnected,
    without_traces,
)
from pymc_coresets.reading.folding import simplified
from pymc_coresets.reading.observations import Observations
from pymc_coresets.reading.pushdown import RowArray
from pymc_coresets.reading.units.factors import GroupingFactor
from pymc_coresets.reading.units.ragged import collect

#: Names of what a unit has besides its data.
SIZE, CENTRE, FACTOR = "rows of the unit", "mode of the unit", "width of the unit"
#: Names of what all units have.
POINTS, LOG_WEIGHTS = "nodes", "weights of nodes"


@dataclass(frozen=True, eq=False)
class UnitDensity:
    """The log-density h_g of each unit's variables and data, as a graph.

    Attributes
    ----------
    variables : TensorVariable of shape (n_units, q)
        Input: the variables of each unit, on their unconstrained scale, side by side.
    density, log_prior : TensorVariable of shape (n_units,)
        h_g, and its part without rows, in nats.
    sizes : TensorVariable of int64, of shape (n_units,)
        Input: how many rows each unit has.
    arrays, members : tuple of RowArray
        Inputs: data of the units, and of their rows, unit by unit.
    """

    variables: TensorVariable
    density: TensorVariable
    log_prior: TensorVariable
    sizes: TensorVariable
    arrays: tuple[RowArray, ...]
    members: tuple[RowArray, ...]

    @classmethod
    def of(cls, observations: Observations, factor: GroupingFactor) -> "UnitDensity":
        """Join the log-likelihoods of rows and the log-priors of levels."""
        flat = pt.matrix("variables", dtype="float64", shape=(None, factor.n_dims))
        sizes = pt.lvector("sizes")
        parts: dict[Variable, Variable] = {factor.n_rows: flat.shape[0]}
        parts |= {part.variable: part.of(flat) for part in factor.parts}
        seen: dict[Variable, Variable] = {observations.n_rows: sizes.sum()}
        tables = clone_replace([t for _, t in factor.lookups], parts, rebuild_strict=False)
        for (lookup, _), table in zip(factor.lookups, tables, strict=True):
            seen[lookup.found] = lookup.at_rows(checked_tensor(table), sizes)
        of_rows, log_prior = clone_replace(
            [clone_replace([observations.loglik], seen, rebuild_strict=False)[0], factor.log_prior],
            parts,
            rebuild_strict=False,
        )
        whole = collect(checked_tensor(of_rows), sizes) + log_prior
        prior = pt.broadcast_to(checked_tensor(log_prior), (flat.shape[0],))
        graphs = [without_traces(whole), without_traces(prior)]
        density, alone = cast(list[TensorVariable], simplified(graphs))
        used = set(graph_inputs([density]))
        arrays, members = (
            tuple(row for row in rows if row.placeholder in used)
            for rows in (factor.arrays, observations.rows)
        )
        return cls(flat, density, alone, sizes, arrays, members)

    @cached_property
    def derivatives(self) -> list[TensorVariable]:
        """The gradients of the densities, (n_units, q), and the q rows of their Hessians."""
        return self.derivatives_of(self.density)

    def derivatives_of(self, density: TensorVariable) -> list[TensorVariable]:
        """Return gradients and Hessians of log-densities of units, see `derivatives`."""
        with compiling():
            slope = checked_tensor(pt.grad(density.sum(), self.variables))
            n_dims = self.variables.type.shape[1]
            rows = [pt.grad(slope[:, j].sum(), self.variables) for j in range(n_dims)]
        return cast(list[TensorVariable], simplified(cast(list[Variable], [slope, *rows])))


def integrated(
    units: UnitDensity,
    centre: TensorVariable,
    factor: TensorVariable,
    points: TensorVariable,
    log_weights: TensorVariable,
) -> TensorVariable:
    """Return the graph of L_g, (n_units,), in nats.

    Parameters
    ----------
    units : UnitDensity
    centre : TensorVariable of shape (n_units, q), or (n_units, n_modes, q)
        Where Newton's steps begin: modes for a theta in the middle of the posterior.  With several
        of them, there are nodes around each, and `log_shares` divides the density among them.
    factor : TensorVariable of shape (n_units, q, q), or (n_units, n_modes, q, q)
        A root of the inverse curvature there, whose diagonal is a width where h_g is not concave.
    points : TensorVariable of shape (n_nodes, q)
    log_weights : TensorVariable of shape (n_nodes,)
        See `Nodes`.
    """
    with compiling():
        logs, resolved = [], []
        for around in placed(units, centre, factor, points[:, None, :]):
            given: dict[Variable, Variable] = {units.variables: disconnected(around.variables)}
            at_nodes = checked_tensor(vectorize_graph(units.density, given))
            # Nodes in tails may be where infinite terms are subtracted, as for rates.
            at_nodes = pt.switch(pt.isnan(disconnected(at_nodes)), -np.inf, at_nodes)
            logs.append(at_nodes + disconnected(around.log_share) + log_weights[:, None])
            # Widths that rounding does not resolve would give any value, and modes that are not
            # there: float64 has four digits more.
            widths = pt.stack([row[-1] for row in around.root.entries], axis=-1)
            digits = widths * abs(around.variables)
            resolved.append((disconnected(digits) < 1e12).all(axis=(0, 2)))
        whole = pt.logsumexp(pt.concatenate(logs, axis=0), axis=0)
        return checked_tensor(pt.switch(pt.stack(resolved).all(axis=0), whole, -np.inf))


def summed(units: UnitDensity, centre: TensorVariable, points: TensorVariable) -> TensorVariable:
    """Return the graph of the sum over all values of discrete variables: see `integrated`."""
    with compiling():
        values: dict[Variable, Variable] = {
            units.variables: points[:, None, :] + 0.0 * centre[None]
        }
        at_values = checked_tensor(vectorize_graph(units.density, values))
        return checked_tensor(pt.logsumexp(at_values, axis=0))


class Places(NamedTuple):
    """Graphs of units' variables around one of their modes.

    Parameters
    ----------
    variables : TensorVariable of shape (n_places, n_units, q)
    root : Root
        R_g, of entries (n_units,).
    log_share : TensorVariable of shape (n_units,) or (n_places, n_units)
        What is added to the log-density for the integral over standardised places: ``-log |R|``,
        and with several modes which part of the density belongs to this one.
    """

    variables: TensorVariable
    root: "Root"
    log_share: TensorVariable


def placed(
    units: UnitDensity, centre: TensorVariable, factor: TensorVariable, x: TensorVariable
) -> list[Places]:
    """Return units' variables at standardised places, around each of their modes.

    Parameters
    ----------
    units, centre, factor
        See `integrated`.
    x : TensorVariable of shape (n_places, n_units or 1, q)
        From the mode of each unit, in units of its widths.
    """
    n_dims = units.variables.type.shape[1]
    several = centre.type.ndim == 3
    n_modes = int(centre.type.shape[1]) if several else 1
    roots, modes, found = [], [], []
    for m in range(n_modes):
        middle, width = (centre[:, m], factor[:, m]) if several else (centre, factor)
        root, step = _newton(units, middle, [width[:, j, j] for j in range(n_dims)])
        whitened = [step[j][None] + x[:, :, j] for j in range(n_dims)]
        found.append(middle[None] + pt.stack(root.solved_above(whitened), axis=-1))
        modes.append(middle + pt.stack(root.solved_above(step), axis=-1))
        roots.append(root)
    shares = [-root.log_determinant for root in roots]
    if several:
        shares = [
            share + log_shares(x, z, modes, roots, m)
            for m, (share, z) in enumerate(zip(shares, found, strict=True))
        ]
    return [Places(*each) for each in zip(found, roots, shares, strict=True)]


def log_shares(
    x: TensorVariable,
    z: TensorVariable,
    modes: Sequence[TensorVariable],
    roots: Sequence["Root"],
    own: int,
) -> TensorVariable:
    """Return which part of the density at a place belongs to the mode whose node it is, as a log.

    The shares of all modes add up to one at each place: ``phi_m / sum_m phi_m`` with
    ``phi_m = |R_m| (1 + |R_m' (z - mode_m)|^2)^-3``.  They vary slowly between modes, so that
    nodes around each integrate its share, and vanish where another mode's nodes are closer.

    Parameters
    ----------
    x, z : TensorVariable of shape (n_places, n_units, q)
        Places around a mode, standardised and not; axes of x may have length 1.
    modes : sequence of TensorVariable of shape (n_units, q)
    roots : sequence of Root
    own : int
        The number of the mode.

    Returns
    -------
    TensorVariable of shape (n_places, n_units)
    """
    heights = []
    for mode, root in zip(modes, roots, strict=True):
        away, n_dims = z - mode[None], len(root.entries)
        square = sum(
            pt.square(sum(root.entries[i][j] * away[:, :, i] for i in range(j, n_dims)))
            for j in range(n_dims)
        )
        heights.append(root.log_determinant - 3.0 * pt.log1p(square))
    height = roots[own].log_determinant - 3.0 * pt.log1p(pt.square(x).sum(axis=-1))
    return checked_tensor(height - pt.logsumexp(pt.stack(heights), axis=0))


class Root(NamedTuple):
    """Lower triangular matrices R of all units, by their entries: see `placed`."""

    entries: list[list[TensorVariable]]

    @property
    def log_determinant(self) -> TensorVariable:
        """``log |R|``."""
        return checked_tensor(sum(pt.log(row[-1]) for row in self.entries))

    def solved(self, x: Sequence[TensorVariable]) -> list[TensorVariable]:
        """Return ``R^-1 x`` for vectors by their entries."""
        found: list[TensorVariable] = []
        for row, value in zip(self.entries, x, strict=True):
            known = sum(a * b for a, b in zip(row, found, strict=False))
            found.append((value - known) / row[-1])
        return found

    def solved_above(self, x: Sequence[TensorVariable]) -> list[TensorVariable]:
        """Return ``R^-T x`` for vectors by their entries."""
        n = len(self.entries)
        found: list[TensorVariable] = []  # the last entry first
        for i in reversed(range(n)):
            known = sum(self.entries[j][i] * found[n - 1 - j] for j in range(i + 1, n))
            found.append((x[i] - known) / self.entries[i][i])
        return found[::-1]


def _newton(
    units: UnitDensity, centre: TensorVariable, widths: Sequence[TensorVariable]
) -> tuple[Root, list[TensorVariable]]:
    """Return the root of the curvature at the centre, and Newton's step in its coordinates."""
    n_dims = len(widths)
    given: dict[Variable, Variable] = {units.variables: centre}
    at_centre = clone_replace(units.derivatives, given, rebuild_strict=False)
    slope, *rows = cast(list[TensorVariable], at_centre)
    slopes, curvature = [slope[:, j] for j in range(n_dims)], [-row for row in rows]
    entries: list[list[TensorVariable]] = []
    for i in range(n_dims):  # Cholesky's algorithm
        row: list[TensorVariable] = []
        for j in range(i):
            known = sum(a * b for a, b in zip(row, entries[j][:j], strict=True))
            row.append((curvature[i][:, j] - known) / entries[j][j])
        left = curvature[i][:, i] - sum(a * a for a in row)
        usual = 1 / pt.square(widths[i])
        usable = (left > 1e-6 * usual) & (left < np.inf)
        row.append(pt.sqrt(pt.switch(usable, left, usual)))
        entries.append([pt.switch(pt.isnan(a), 0.0, a) for a in row[:-1]] + row[-1:])
    root = Root(entries)
    finite = [pt.switch(pt.isnan(s) | pt.isinf(s), 0.0, s) for s in slopes]
    step = root.solved(finite)
    foreseen = sum(pt.square(s) for s in step) / 2
    beyond = [s + pt.switch(s < 0, -1.0, 1.0) for s in step]
    there = centre + pt.stack(root.solved_above(beyond), axis=-1)
    both: dict[Variable, Variable] = {units.variables: pt.stack([centre, there])}
    heights = checked_tensor(vectorize_graph(units.density, both))
    # A width beyond the end of the step, along each axis, a normal density has lost half a nat
    # again.  If much more is lost, the curvature is that of a flat place, or the step leads too
    # far: then widths are at most those in the middle of the posterior, and the step six of them.
    kept = heights[1] - heights[0] >= 0.25 * foreseen - 2.0 * n_dims
    entries = [
        [pt.switch(kept, a, 0.0) for a in row[:-1]]
        + [pt.switch(kept, row[-1], pt.maximum(row[-1], 1 / width))]
        for row, width in zip(root.entries, widths, strict=True)
    ]
    shorter = Root(entries)
    short = [s / pt.sqrt(1 + pt.square(s / 6.0)) for s in shorter.solved(finite)]
    return shorter, [pt.switch(kept, s, less) for s, less in zip(step, short, strict=True)]
