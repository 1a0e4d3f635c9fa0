"""The log-likelihood of units, whose own variables are integrated out by nodes that move.

For unit g with variables z of q dimensions and log-density ``h_g(z; theta)``, their log-prior and
the log-likelihoods of the unit's rows,

    L_g(theta) = log sum_k exp(a_k - log |R_g| + h_g(z_gk; theta)),  z_gk = m_g + R_g^-T x_k,

with Gauss-Hermite nodes x_k, their weights in a_k, and m_g(theta) and ``R_g R_g'(theta)`` close to
the mode and the negative Hessian of h_g: steps of Newton's lead there from the mode at some theta
in the middle of the posterior (`placement`).  Nodes that do not move are wrong by nats where a unit
has many rows, as theta moves its mode by more than its width; widths that do not change are wrong
without bound where the scale of the variables' prior goes to zero (adaptive quadrature: Liu and
Pierce 1994, Biometrika 81; Pinheiro and Bates 1995).  And one step is not enough along several
axes: the few nodes of such rules are far apart, and far from that theta the sum of many units would
have peaks of its own.  Widths are limited only if the density falls much faster than its curvature
says: many widths are right where the density is almost normal, as it is in units of many rows, and
by a prior of a small scale.  Between two modes, or in a tail, the curvature may be close to zero,
and its width says nothing.

Around one mode, nodes lie around the mean of each unit's density, with its covariance and skewness:
see `stretched`.

The integral does not depend on where its nodes are, but for their error.  So gradients are those at
nodes that stay: ``grad L_g = E[grad h_g(z; theta) | y]``, Fisher's identity, by the same nodes.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, reduce
from typing import NamedTuple, cast

import numpy as np
import pytensor.tensor as pt
from pytensor.graph import Constant, Variable, clone_replace, graph_inputs, vectorize_graph
from pytensor.tensor import TensorVariable

from pymc_coresets.compat import pytensor_api as ops
from pymc_coresets.compat.pytensor_api import (
    checked_tensor,
    checked_tensors,
    compiling,
    disconnected,
    without_traces,
)
from pymc_coresets.reading.folding import simplified, without_fills
from pymc_coresets.reading.observations import Observations
from pymc_coresets.reading.pushdown import RowArray
from pymc_coresets.reading.units.bending import bent
from pymc_coresets.reading.units.complements import without_double_complements
from pymc_coresets.reading.units.each_column import by_columns
from pymc_coresets.reading.units.factors import GroupingFactor
from pymc_coresets.reading.units.fewer_functions import with_fewer_functions
from pymc_coresets.reading.units.placement import Root, Surface
from pymc_coresets.reading.units.ragged import Collect, Spread, collect

#: Names of what a unit has besides its data.
SIZE, CENTRE, FACTOR = "rows of the unit", "mode of the unit", "width of the unit"
MOMENTS = "moments of the unit"
#: Those which follow from the others.
DERIVED = (CENTRE, FACTOR, MOMENTS)
#: Names of where a unit's nodes are if they stay there, and of what is added to log-densities.
PLACES, LOG_SHARES = "places of nodes", "shares of nodes"
#: Nats by which densities in a tail are below their integral that add nothing to it.
_NEGLIGIBLE = 23.0
#: Names of what all units have.
POINTS, LOG_WEIGHTS = "nodes", "weights of nodes"


def not_derived(rows: Sequence[RowArray], arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Return the arrays of units without those that follow from the others, as nodes do."""
    return [a for row, a in zip(rows, arrays, strict=True) if row.name not in DERIVED]


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
    arrays, unit_rows : tuple of RowArray
        Inputs: data of the units, and of their rows, unit by unit.
    """

    variables: TensorVariable
    density: TensorVariable
    log_prior: TensorVariable
    sizes: TensorVariable
    arrays: tuple[RowArray, ...]
    unit_rows: tuple[RowArray, ...]

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
        rows = collect(checked_tensor(of_rows), sizes, n_unit_rows=factor.n_unit_rows)
        whole = rows + log_prior
        prior = pt.broadcast_to(checked_tensor(log_prior), (flat.shape[0],))
        graphs = [without_traces(whole), without_traces(prior)]
        written = without_double_complements(simplified(graphs))
        density, alone = checked_tensors(without_fills(written))
        used = set(graph_inputs([density]))
        arrays, unit_rows = (
            tuple(row for row in rows if row.placeholder in used)
            for rows in (factor.arrays, observations.rows)
        )
        return cls(flat, density, alone, sizes, arrays, unit_rows)

    @cached_property
    def surface(self) -> Surface:
        """The same by the columns of the variables."""
        columns = [pt.vector(f"column {j}", dtype="float64") for j in range(self.n_dims)]
        axes, of_members = (
            dict[Variable, int]((row.placeholder, row.axis) for row in rows)
            for rows in (self.arrays, self.unit_rows)
        )
        with compiling():
            [density] = by_columns([self.density], self.variables, columns)
            [density] = checked_tensors(with_fewer_functions(simplified([density])))
        return Surface(columns, density, self.sizes, axes, of_members)

    @property
    def n_dims(self) -> int:
        """Number of variables of a unit, q."""
        return cast(int, self.variables.type.shape[1])

    @cached_property
    def has_common_values(self) -> bool:
        """Whether what all units have in common may be one value, for all of them and their rows.

        Rows then look up what it selects once, and not for each unit.  Not so if the density counts
        the units, or looks something up by them.
        """
        own: set[Variable] = {self.variables}
        for node in ops.io_toposort([self.variables], [self.density]):
            if own.isdisjoint(node.inputs):
                continue
            own.update(node.outputs)
            x, *others = node.inputs
            fixed = all(v in own or isinstance(v, Constant) for v in others)
            if isinstance(node.op, ops.AdvancedSubtensor):
                if x in own or not fixed:
                    return False
            elif isinstance(node.op, ops.Subtensor):  # a column
                if x is not self.variables or node.op.idx_list[0] != slice(None) or not fixed:
                    return False
            elif not isinstance(node.op, ops.Elemwise | ops.DimShuffle | Spread | Collect):
                return False
        return True

    def at_values(self, values: TensorVariable) -> TensorVariable:
        """Return log-densities at values of discrete variables, of all units or of each.

        Parameters
        ----------
        values : TensorVariable of shape (n_values, 1 or n_units, q)
            The former if `has_common_values`.

        Returns
        -------
        TensorVariable of shape (n_values, n_units)
        """
        return checked_tensor(vectorize_graph(self.density, {self.variables: values}))

    def derivatives_of(self, density: TensorVariable) -> list[TensorVariable]:
        """Return the gradients of log-densities, (n_units, q), and the rows of their Hessians."""
        with compiling():
            slope = checked_tensor(pt.grad(density.sum(), self.variables))
            rows = [pt.grad(slope[:, j].sum(), self.variables) for j in range(self.n_dims)]
        return checked_tensors(simplified(checked_tensors([slope, *rows])))


def integrated(
    units: UnitDensity,
    centre: TensorVariable,
    factor: TensorVariable,
    points: TensorVariable,
    log_weights: TensorVariable,
    *moments: TensorVariable,
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
    *moments : TensorVariable of shape (n_units, q, q + 2)
        With one mode, see `stretched`.
    """
    with compiling():
        logs, resolved = [], []
        for around in placed(units, centre, factor, points[:, None, :], *moments):
            at_nodes = units.surface.at(around.columns) + around.log_share + log_weights[:, None]
            logs.append(at_nodes)
            # Widths that rounding does not resolve would give any value, and modes that are not
            # there: float64 has four digits more.
            for row, z in zip(around.root.entries, around.columns, strict=True):
                resolved.append((row[-1] * abs(z) < 1e12).all(axis=0))
        whole = pt.logsumexp(pt.concatenate([*map(_where_known, logs)], axis=0), axis=0)
        known = [_is_known(disconnected(own), points, disconnected(whole)) for own in logs]
        return checked_tensor(pt.switch(pt.all(resolved + known, axis=0), whole, -np.inf))


def at_places(
    units: UnitDensity, places: TensorVariable, log_shares: TensorVariable
) -> TensorVariable:
    """Return the graph of L_g by nodes that stay where they are, such as those of a theta near by.

    Parameters
    ----------
    units : UnitDensity
    places : TensorVariable of shape (n_units, n_nodes, q)
    log_shares : TensorVariable of shape (n_units, n_nodes)
        What is added to the log-densities there, with the weights of nodes.
    """
    with compiling():
        at_nodes = units.surface.at([places[:, :, j].T for j in range(units.n_dims)])
        logs = at_nodes + log_shares.T
        whole = pt.logsumexp(_where_known(logs), axis=0)
        # These few nodes are in no tail.
        return checked_tensor(pt.switch(pt.any(pt.eq(logs, np.inf), axis=0), -np.inf, whole))


def _where_known(at_nodes: TensorVariable) -> TensorVariable:
    """Return log-densities at nodes, -inf at those where they are not numbers, or +inf.

    There infinite terms are subtracted, as for rates, or a scale is zero or infinite by rounding.
    """
    return checked_tensor(pt.switch(disconnected(at_nodes) < np.inf, at_nodes, -np.inf))


def _is_known(
    at_nodes: TensorVariable, points: TensorVariable, whole: TensorVariable
) -> TensorVariable:
    """Return whether integrals `whole` are known, (n_units,), of densities that may be +inf.

    The tail of a density begins at half the distance of the nearest node where it is +inf.  If it
    is negligible at the other nodes there, it is so at these, where it is infinite by rounding.
    Otherwise the integral is not known.

    Parameters
    ----------
    at_nodes : TensorVariable of shape (n_nodes, n_units)
        Log-densities.
    points : TensorVariable of shape (n_nodes, q)
        These nodes, standardised.
    whole : TensorVariable of shape (n_units,)
    """
    square = pt.square(points).sum(axis=1)[:, None]
    nearest = pt.where(pt.eq(at_nodes, np.inf), square, np.inf).min(axis=0)
    is_other = (at_nodes < np.inf) & (square >= nearest / 4)
    largest = pt.where(is_other, at_nodes, -np.inf).max(axis=0)
    is_small = (-np.inf < largest) & (largest < whole - _NEGLIGIBLE)
    return checked_tensor(pt.eq(nearest, np.inf) | is_small)


def summed(units: UnitDensity, centre: TensorVariable, points: TensorVariable) -> TensorVariable:
    """Return the graph of the sum over all values of discrete variables: see `integrated`."""
    with compiling():
        values = points[:, None, :]
        if not units.has_common_values:
            values = values + 0.0 * centre[None]
        at_values = units.at_values(checked_tensor(values))
        return checked_tensor(pt.logsumexp(at_values, axis=0))


class Places(NamedTuple):
    """Graphs of units' variables around one of their modes.

    Parameters
    ----------
    columns : sequence of TensorVariable of shape (n_places, n_units)
        Each variable.
    root : Root
        R_g, of entries (n_units,).
    log_share : TensorVariable of shape (n_units,) or (n_places, n_units)
        What is added to the log-density for the integral over standardised places: ``-log |R|``;
        with moments, the determinant of their root; with several modes, which part of the density
        belongs to this one.
    """

    columns: Sequence[TensorVariable]
    root: Root
    log_share: TensorVariable


def placed(
    units: UnitDensity,
    centre: TensorVariable,
    factor: TensorVariable,
    x: TensorVariable,
    *moments: TensorVariable,
    straight: bool = False,
) -> list[Places]:
    """Return units' variables at standardised places, around each of their modes.

    Nothing here has a gradient: see above.

    Parameters
    ----------
    units, centre, factor, moments
        See `integrated`.
    x : TensorVariable of shape (n_places, n_units or 1, q)
        From the mode of each unit, in units of its widths; with moments, from its mean.
    straight : bool, default False
        See `stretched`.
    """
    n_dims, place, others = units.n_dims, units.surface.placement, units.surface.others
    several = centre.type.ndim == 3
    n_modes = int(centre.type.shape[1]) if several else 1
    roots, modes, found = [], [], []
    away, volumes = [x[:, :, j] for j in range(n_dims)], list[TensorVariable]()
    for of_units in moments:
        away, volume = stretched(away, of_units, straight=straight)
        volumes.append(volume)
    for m in range(n_modes):
        middle, width = (centre[:, m], factor[:, m]) if several else (centre, factor)
        outputs = [*map(checked_tensor, place.make_node(middle, width, *others).outputs)]
        mode, root = outputs[:n_dims], Root.of(outputs[n_dims:])
        steps = root.solved_above(away)
        found.append([z[None] + step for z, step in zip(mode, steps, strict=True)])
        modes.append(mode)
        roots.append(root)
    shares = [reduce(pt.add, volumes, -root.log_determinant) for root in roots]
    if several:
        shares = [
            share + log_shares(away, columns, modes, roots, m)
            for m, (share, columns) in enumerate(zip(shares, found, strict=True))
        ]
    return [Places(*each) for each in zip(found, roots, shares, strict=True)]


def stretched(
    x: Sequence[TensorVariable], moments: TensorVariable, *, straight: bool = False
) -> tuple[list[TensorVariable], TensorVariable]:
    """Return places around the mean of each unit's density as places around its mode.

    A rule is exact for polynomials times a normal density.  That with the mean and covariance of
    the unit's density leaves a smaller rest than that with its mode and curvature: with 41 nodes
    in two dimensions, sums over units have a fifth of the error or less (Naylor and Smith 1982,
    Applied Statistics 31).  So does one that is as skew along each axis: see `bent`.  Relative to
    mode and width, these moments depend little on the shared variables, so those in the middle of
    the posterior are enough; any change of variables is exact.

    Parameters
    ----------
    x : sequence of TensorVariable of shape (n_places, n_units or 1)
        Standardised by mean and covariance.
    moments : TensorVariable of shape (n_units, q, q + 2)
        The mean and a lower triangular root of the covariance, of places that are standardised by
        mode and curvature, and by how much each axis bends, side by side.
    straight : bool, default False
        Whether to leave out how axes bend, for places that are linear in x.

    Returns
    -------
    places : list of TensorVariable of shape (n_places, n_units)
    log_volume : TensorVariable of shape (n_units,), or (n_places, n_units) if axes bend
    """
    n_dims = len(x)
    root = Root([[moments[:, i, 1 + j] for j in range(i + 1)] for i in range(n_dims)])
    own, volume = list(x), root.log_determinant
    if not straight:
        own, slopes = zip(*(bent(a, moments[:, j, -1]) for j, a in enumerate(x)), strict=True)
        volume = checked_tensor(volume + sum(slopes))
    places = [moments[:, i, 0] + away for i, away in enumerate(root.times(own))]
    return places, volume


def log_shares(
    x: Sequence[TensorVariable],
    z: Sequence[TensorVariable],
    modes: Sequence[Sequence[TensorVariable]],
    roots: Sequence[Root],
    own: int,
) -> TensorVariable:
    """Return which part of the density at a place belongs to the mode whose node it is, as a log.

    The shares of all modes add up to one at each place: ``phi_m / sum_m phi_m`` with
    ``phi_m = |R_m| (1 + |R_m' (z - mode_m)|^2)^-3``.  They vary slowly between modes, so that
    nodes around each integrate its share, and vanish where another mode's nodes are closer.

    Parameters
    ----------
    x, z : sequence of TensorVariable of shape (n_places, n_units)
        Places around a mode, standardised and not, by variable; axes of x may have length 1.
    modes : sequence of sequences of TensorVariable of shape (n_units,)
    roots : sequence of Root
    own : int
        The number of the mode.

    Returns
    -------
    TensorVariable of shape (n_places, n_units)
    """
    heights = []
    for mode, root in zip(modes, roots, strict=True):
        away = root.times_above([a - b[None] for a, b in zip(z, mode, strict=True)])
        square = sum(pt.square(a) for a in away)
        heights.append(root.log_determinant - 3.0 * pt.log1p(square))
    height = roots[own].log_determinant - 3.0 * pt.log1p(sum(pt.square(a) for a in x))
    return checked_tensor(height - pt.logsumexp(pt.stack(heights), axis=0))
