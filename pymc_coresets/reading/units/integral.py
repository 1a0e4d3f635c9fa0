"""The log-likelihood of units, whose own variables are integrated out by nodes that move.

For unit g with variables z of q dimensions and log-density ``h_g(z; theta)``, their log-prior and
the log-likelihoods of the unit's rows,

    L_g(theta) = log sum_k exp(a_k - log |R_g| + h_g(z_gk; theta)),  z_gk = m_g + R_g^-T x_k,

with Gauss-Hermite nodes x_k, their weights in a_k, and m_g(theta) and ``R_g R_g'(theta)`` close to
the mode and the negative Hessian of h_g: a step of Newton's leads there from the mode at some theta
in the middle of the posterior.  Nodes that do not move are wrong by nats where a unit has many
rows, as theta moves its mode by more than its width; widths that do not change are wrong without
bound where the scale of the variables' prior goes to zero (adaptive quadrature: Liu and Pierce
1994, Biometrika 81; Pinheiro and Bates 1995).  A step is shortened only where the density gains
much less by it than its curvature says: many widths are right where the density is almost normal,
as it is in units of many rows, and by a prior of a small scale.

The integral does not depend on where its nodes are, but for their error.  So gradients are those at
nodes that stay: ``grad L_g = E[grad h_g(z; theta) | y]``, Fisher's identity, by the same nodes.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from typing import NamedTuple, cast

import numpy as np
import pytensor.tensor as pt
from pytensor.graph import Variable, clone_replace, graph_inputs, vectorize_graph
from pytensor.tensor import TensorVariable

from pymc_coresets.compat.pytensor_api import compiling, without_traces, zero_grad
from pymc_coresets.reading.folding import simplified
from pymc_coresets.reading.observations import Observations
from pymc_coresets.reading.pushdown import RowArray
from pymc_coresets.reading.units.factors import Factor
from pymc_coresets.reading.units.ragged import collect, spread

_FIRST = {1: 7, 2: 5}  # nodes along each axis, by the number of axes
_LEAST_EACH, _MANY_MEMBERS = 3, 50.0
_NUMBERS = (3, 5, 7, 11, 17, 25, 41, 61)  # along an axis
_MOST = 1_000  # nodes
_TO_JUDGE_BY = {1: 101, 2: 31, 3: 12, 4: 8, 5: 5}  # along an axis, by the number of axes
_LEAST = 1e-7  # of a weight, beside the largest: such nodes add nothing


@dataclass(frozen=True, eq=False)
class Nodes:
    """``integral of f(x) N(x; 0, I) dx = sum_k w_k f(x_k)``, for smooth functions of q numbers.

    Parameters
    ----------
    points : ndarray of shape (n_nodes, q)
    log_weights : ndarray of shape (n_nodes,)
        Of ``log(w_k) + |x_k|^2 / 2 + (q / 2) log(2 pi)``: what a node's log-density gets for an
        integral without the weight.
    n_each : int
        Number of nodes K along each axis; 0 where they are all values of discrete variables.

    Examples
    --------
    >>> nodes = Nodes.of_axes(3, 2)
    >>> nodes.points.shape
    (9, 2)
    >>> h = -0.5 * np.square(nodes.points).sum(axis=1)  # its integral is 2 pi
    >>> bool(np.isclose(np.exp(nodes.log_weights + h).sum(), 2 * np.pi))
    True
    """

    points: np.ndarray
    log_weights: np.ndarray
    n_each: int

    @classmethod
    def of_axes(cls, n_each: int, n_dims: int) -> "Nodes":
        """Take all combinations of Gauss-Hermite nodes along q axes that count for anything.

        Exact for polynomials of degree ``2 K - 1`` along each axis; ``K = 1`` is Laplace's method.
        """
        x, w = np.polynomial.hermite_e.hermegauss(n_each)
        w = w / w.sum()
        points = np.array(list(product(x, repeat=n_dims)))
        weights = np.array([np.prod(ws) for ws in product(w, repeat=n_dims)])
        kept = weights > _LEAST * weights.max() if n_dims > 1 else weights > 0
        points, weights = points[kept], weights[kept] / weights[kept].sum()
        logs = np.log(weights) + np.square(points).sum(axis=1) / 2
        return cls(points, logs + n_dims / 2 * np.log(2 * np.pi), n_each)

    @classmethod
    def of_values(cls, values: Sequence[Sequence[int]]) -> "Nodes":
        """Take all combinations of the values of discrete variables: their sum is exact.

        Examples
        --------
        >>> Nodes.of_values([[0, 1], [0, 1, 2]]).points.shape
        (6, 2)
        """
        points = np.array(list(product(*values)), dtype=float)
        return cls(points, np.zeros(len(points)), 0)

    def __len__(self) -> int:
        return len(self.points)


def fewest_nodes(n_dims: int, n_members: float = 1.0) -> int | None:
    """Return with how many nodes along each axis to begin; None where there are too many axes.

    Parameters
    ----------
    n_dims : int
        Number of axes q.
    n_members : float
        Mean number of rows of a unit: with many, its density is closer to normal.

    Examples
    --------
    >>> fewest_nodes(1), fewest_nodes(2, 100.0), fewest_nodes(9)
    (7, 3, None)
    """
    n_each = _FIRST.get(n_dims, _LEAST_EACH)
    if n_members >= _MANY_MEMBERS:
        n_each = max(n_each - 2, _LEAST_EACH)
    return n_each if n_each**n_dims <= _MOST else None


def more_nodes(n_each: int, n_dims: int, steps: int = 1) -> int | None:
    """Return a larger number of nodes along each axis; None where there is none to judge it by.

    Parameters
    ----------
    n_each, n_dims : int
    steps : int
        Each has about a hundredth of the error, where units have a single mode.

    Examples
    --------
    >>> more_nodes(7, 1), more_nodes(7, 1, 3), more_nodes(7, 4)
    (11, 25, None)
    """
    more = [n for n in _NUMBERS if n_each < n < nodes_to_judge_by(n_dims)]
    return more[min(steps, len(more)) - 1] if more else None


def nodes_to_judge_by(n_dims: int) -> int:
    """Return how many nodes along each axis have no error, beside that of fewer.

    Examples
    --------
    >>> nodes_to_judge_by(1), nodes_to_judge_by(2), nodes_to_judge_by(6)
    (101, 31, 4)
    """
    return _TO_JUDGE_BY.get(n_dims, _LEAST_EACH + 1)


_AS_FORESEEN = 0.25  # of what a step gains by the curvature: less, and it is shortened
_LONGEST_STEP = 6.0  # widths of a unit, that a shortened step has at most
_DIGITS = 1e12  # that a variable may have before its width: float64 has four more
_FLAT = 1e-6  # of the usual curvature of a unit: less is none

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
    density : TensorVariable of shape (n_units,)
        h_g, in nats.
    sizes : TensorVariable of int64, of shape (n_units,)
        Input: how many rows each unit has.
    arrays, members : tuple of RowArray
        Inputs: data of the units, and of their rows, unit by unit.
    """

    variables: TensorVariable
    density: TensorVariable
    sizes: TensorVariable
    arrays: tuple[RowArray, ...]
    members: tuple[RowArray, ...]

    @classmethod
    def of(cls, observations: Observations, factor: Factor) -> "UnitDensity":
        """Join the log-likelihoods of rows and the log-priors of levels."""
        flat = pt.matrix("variables", dtype="float64", shape=(None, factor.n_dims))
        sizes = pt.lvector("sizes")
        parts: dict[Variable, Variable] = {factor.n_rows: flat.shape[0]}
        parts |= {part.variable: part.of(flat) for part in factor.parts}
        seen: dict[Variable, Variable] = {observations.n_rows: sizes.sum()}
        tables = clone_replace([t for _, t, _ in factor.lookups], parts, rebuild_strict=False)
        for (found, _, axis), table in zip(factor.lookups, tables, strict=True):
            seen[found] = spread(cast(TensorVariable, table), sizes, axis)
        of_rows, log_prior = clone_replace(
            [clone_replace([observations.loglik], seen, rebuild_strict=False)[0], factor.log_prior],
            parts,
            rebuild_strict=False,
        )
        whole = collect(cast(TensorVariable, of_rows), sizes) + log_prior
        [density] = cast(list[TensorVariable], simplified([without_traces(whole)]))
        used = set(graph_inputs([density]))
        arrays, members = (
            tuple(row for row in rows if row.placeholder in used)
            for rows in (factor.arrays, observations.rows)
        )
        return cls(flat, density, sizes, arrays, members)

    @cached_property
    def derivatives(self) -> list[TensorVariable]:
        """The gradients of the densities, (n_units, q), and the q rows of their Hessians."""
        with compiling():
            slope = cast(TensorVariable, pt.grad(self.density.sum(), self.variables))
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
    centre : TensorVariable of shape (n_units, q)
        Where Newton's steps begin: modes for a theta in the middle of the posterior.
    factor : TensorVariable of shape (n_units, q, q)
        A root of the inverse curvature there, whose diagonal is a width where h_g is not concave.
    points : TensorVariable of shape (n_nodes, q)
    log_weights : TensorVariable of shape (n_nodes,)
        See `Nodes`.
    """
    with compiling():
        moved, root = placed(units, centre, factor, points[:, None, :])
        given: dict[Variable, Variable] = {units.variables: zero_grad(moved)}
        at_nodes = cast(TensorVariable, vectorize_graph(units.density, given))
        logs = at_nodes + log_weights[:, None]
        whole = pt.logsumexp(logs, axis=0) - zero_grad(root.log_determinant)
        # Widths that rounding does not resolve would give any value, and modes that are not there.
        digits = pt.stack([row[-1] for row in root.entries], axis=-1) * abs(moved)
        return cast(TensorVariable, pt.switch((digits < _DIGITS).all(axis=(0, 2)), whole, -np.inf))


def summed(units: UnitDensity, centre: TensorVariable, points: TensorVariable) -> TensorVariable:
    """Return the graph of the sum over all values of discrete variables: see `integrated`."""
    with compiling():
        values: dict[Variable, Variable] = {
            units.variables: points[:, None, :] + 0.0 * centre[None]
        }
        at_values = cast(TensorVariable, vectorize_graph(units.density, values))
        return cast(TensorVariable, pt.logsumexp(at_values, axis=0))


def placed(
    units: UnitDensity, centre: TensorVariable, factor: TensorVariable, x: TensorVariable
) -> tuple[TensorVariable, "Root"]:
    """Return the graphs of units' variables at standardised places, and of R_g.

    Parameters
    ----------
    units, centre, factor
        See `integrated`.
    x : TensorVariable of shape (n_places, n_units or 1, q)
        From the mode of each unit, in units of its widths.

    Returns
    -------
    TensorVariable of shape (n_places, n_units, q)
    Root
    """
    n_dims = units.variables.type.shape[1]
    root, step = _newton(units, centre, [factor[:, j, j] for j in range(n_dims)])
    whitened = [step[j][None] + x[:, :, j] for j in range(n_dims)]
    moved = centre[None] + pt.stack(root.solved_above(whitened), axis=-1)
    return cast(TensorVariable, moved), root


class Root(NamedTuple):
    """Lower triangular matrices R of all units, by their entries, each (n_units,)."""

    entries: list[list[TensorVariable]]

    @property
    def log_determinant(self) -> TensorVariable:
        """``log |R|``."""
        return cast(TensorVariable, sum(pt.log(row[-1]) for row in self.entries))

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
        usable = (left > _FLAT * usual) & (left < np.inf)
        row.append(pt.sqrt(pt.switch(usable, left, usual)))
        entries.append([pt.switch(pt.isnan(a), 0.0, a) for a in row[:-1]] + row[-1:])
    root = Root(entries)
    step = root.solved([pt.switch(pt.isnan(s) | pt.isinf(s), 0.0, s) for s in slopes])
    foreseen = sum(pt.square(s) for s in step) / 2
    there = centre + pt.stack(root.solved_above(step), axis=-1)
    before, after = (
        cast(TensorVariable, vectorize_graph(units.density, {units.variables: z}))
        for z in (centre, there)
    )
    kept = after - before >= _AS_FORESEEN * foreseen
    short = [s / pt.sqrt(1 + pt.square(s / _LONGEST_STEP)) for s in step]
    return root, [pt.switch(kept, s, less) for s, less in zip(step, short, strict=True)]
