"""Sums of the polynomials of rows by JAX, on its default device."""

from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import pytensor.tensor as pt
from scipy.special import comb

from pymc_coresets.compat.jax_api import in_double, jax, jnp
from pymc_coresets.compat.pytensor_api import Variable, clone_replace
from pymc_coresets.exceptions import UnsupportedModelError
from pymc_coresets.glm.polynomial.chebyshev import RowPolynomials, chebyshev_fit
from pymc_coresets.glm.polynomial.moments import finished_moment
from pymc_coresets.glm.polynomial.multi_indices import monomial_levels, monomials
from pymc_coresets.glm.polynomial.statistics import PolynomialStatistics
from pymc_coresets.glm.predictor.link import Link
from pymc_coresets.potentials.backends.device_rows import DeviceRows, entries_together, padded
from pymc_coresets.potentials.backends.jax_kernel import JaxKernel
from pymc_coresets.rows.values import Rows
from pymc_coresets.solving.problem import Matrix, Vector

__all__ = ["DevicePolynomials", "DeviceSums"]

_COMPARED = 100  # rows
_CPU_ENTRIES = 2**19  # of the largest array of a block
_BLOCK_ROWS = (512, 2**17)  # at least and at most


class DevicePolynomials:
    """The polynomials of a generalised linear model's rows, computed and used on JAX's device.

    A row's log-likelihoods at the nodes, its polynomial and its monomials stay there; a block's
    sums come back.  Everything is in float64.

    Parameters
    ----------
    link : Link
        Log-density of a row as a function of its predictor.
    degree : int

    Raises
    ------
    UnsupportedModelError
        If the link cannot be translated, or comes out differently.

    Examples
    --------
    >>> import pymc as pm
    >>> from pymc_coresets.glm.polynomial.replacement import row_polynomials
    >>> from pymc_coresets.glm.predictor.linear import find_linear_predictor
    >>> from pymc_coresets.reading.observations import find_observations
    >>> with pm.Model() as model:
    ...     y = pm.Bernoulli("y", logit_p=pm.Normal("a"), observed=[0, 1, 1])
    >>> found = find_linear_predictor(find_observations(model))
    >>> sums = DevicePolynomials(found.link, 2).sums(4.0)
    >>> sums.add(found.design, row_polynomials(found, 2, 4.0))
    >>> sums.finished().moments[2].round(3)
    array([[-0.245]])
    """

    def __init__(self, link: Link, degree: int) -> None:
        self.degree = degree
        one = pt.scalar("eta", dtype=link.eta.type.dtype)
        at_one: dict[Variable, Variable] = {link.eta: one[None]}
        [graph] = clone_replace([link.graph], at_one, rebuild_strict=False)
        rows = dict(enumerate(link.rows))
        self._kernel = JaxKernel(graph, link.n_rows, {"eta": one}, rows, dtype="float64")
        self._verify(link)

    def sums(self, radius: float) -> "DeviceSums":
        """Return sums of the polynomials on [-radius, radius], of no rows yet."""
        return DeviceSums(self, radius)

    def compared(
        self, design: Matrix, rows: RowPolynomials, coefficients: Matrix, counts: Vector
    ) -> tuple[float, float]:
        """Compare polynomials and log-likelihoods at the predictors of some draws.

        Returns
        -------
        tuple of float
            Number of predictors outside the radius, and the largest error in nats.
        """
        outside, error = 0.0, 0.0
        width = max(design.shape[1], len(coefficients))
        with in_double():
            given = [jnp.asarray(a) for a in chebyshev_fit(self.degree, rows.radius)]
            theta = jnp.asarray(coefficients)
            for _, arrays, mass in _blocks(design, rows, counts, width):
                beyond, far = self._reach(rows.radius, *given, theta, *arrays, mass)
                outside, error = outside + float(beyond), max(error, float(far))
        return outside, error

    # -- what is compiled ----------------------------------------------------------------------

    @cached_property
    def of_block(self) -> Callable[..., Any]:
        """Function of nodes, fit, design, offset, arrays and weights of a block.

        It returns the moments, the amounts, and whether all log-likelihoods were finite.
        """
        compiled: Callable[..., Any] = jax.jit(self._of_block)
        return compiled

    @cached_property
    def _reach(self) -> Callable[..., Any]:
        compiled: Callable[..., Any] = jax.jit(self._reached)
        return compiled

    # -- of what it is made --------------------------------------------------------------------

    def _of_block(
        self,
        nodes: Any,  # noqa: ANN401 - arrays of JAX
        fit: Any,  # noqa: ANN401
        x: Any,  # noqa: ANN401
        offset: Any,  # noqa: ANN401
        arrays: Sequence[Any],
        weights: Any,  # noqa: ANN401
    ) -> tuple[list[Any], Any, Any]:
        values = self._kernel.potentials([nodes], arrays, len(offset))
        powers = [power * weights for power in _shifted(fit.T @ values, offset)]
        levels = monomial_levels(x.shape[1], -(-self.degree // 2))
        sides = [jnp.ones((len(offset), 1)), *monomials(x, levels)]
        moments = [
            (sides[m // 2] * power[:, None]).T @ sides[m - m // 2] for m, power in enumerate(powers)
        ]
        signs = [[jnp.maximum(sign * power, 0).sum() for power in powers] for sign in (1, -1)]
        return moments, jnp.array(signs), jnp.isfinite(values).all()

    def _reached(
        self,
        radius: Any,  # noqa: ANN401 - arrays of JAX
        nodes: Any,  # noqa: ANN401
        fit: Any,  # noqa: ANN401
        theta: Any,  # noqa: ANN401
        x: Any,  # noqa: ANN401
        offset: Any,  # noqa: ANN401
        arrays: Sequence[Any],
        counts: Any,  # noqa: ANN401
    ) -> tuple[Any, Any]:
        powers = fit.T @ self._kernel.potentials([nodes], arrays, len(offset))
        eta = theta @ x.T + offset
        polynomial = jnp.zeros_like(eta)
        for power in powers[::-1]:
            polynomial = polynomial * eta + power
        error = jnp.abs(self._kernel.own_potentials([eta], arrays) - polynomial).max()
        return ((jnp.abs(eta) > radius) @ counts).sum(), error

    def _verify(self, link: Link) -> None:
        """Compare the link at the nodes with what PyTensor makes of it without JAX."""
        arrays = [np.moveaxis(row.values, row.axis, 0)[:_COMPARED] for row in link.rows]
        n_rows = len(arrays[0]) if arrays else 1
        nodes, _ = chebyshev_fit(self.degree, 1.0)
        expected = link.evaluate(nodes[:, None], slice(0, n_rows), n_rows, compiled=False)
        with in_double():
            found = np.asarray(self._kernel.values([nodes], arrays, n_rows=n_rows))
        wrong = np.isfinite(expected) & ~np.isclose(found, expected, rtol=1e-8, atol=1e-10)
        if wrong.any():
            k, n = np.argwhere(wrong)[0]
            raise UnsupportedModelError(
                f"The log-likelihood of row {n} is {found[k, n]} by JAX, but {expected[k, n]} by "
                f"PyTensor where its predictor is {nodes[k]:.3g}. Use backend='numba', and please "
                "report the model."
            )


class DeviceSums:
    """Adds up the statistics of rows that come in parts, as `PolynomialSums` does.

    Parameters
    ----------
    polynomials : DevicePolynomials
    radius : float
    """

    def __init__(self, polynomials: DevicePolynomials, radius: float) -> None:
        self._polynomials, self.degree, self.radius = polynomials, polynomials.degree, radius
        with in_double():
            self._given = [jnp.asarray(a) for a in chebyshev_fit(polynomials.degree, radius)]
        self.total_weight = 0.0
        self._totals: Any = None

    def add(
        self,
        design: Matrix,
        rows: RowPolynomials,
        *,
        weights: Vector | None = None,
        on_block: Callable[[int], None] | None = None,
    ) -> None:
        """See `PolynomialSums.add`; the design is dense.

        Raises
        ------
        InvalidDataError
            If the log-likelihood of a row is not finite at a node.
        """
        half = -(-self.degree // 2)
        width = max(int(comb(design.shape[1] + half - 1, half)), len(self._given[0]))
        with in_double():
            for block, arrays, mass in _blocks(design, rows, weights, width):
                *found, finite = self._polynomials.of_block(*self._given, *arrays, mass)
                if not finite:
                    rows.in_predictor(block)  # which names the row
                totals = self._totals
                self._totals = found if totals is None else jax.tree.map(jnp.add, totals, found)
                if on_block is not None:
                    on_block(block.stop - block.start)
        self.total_weight += len(design) if weights is None else weights.sum()

    def finished(self) -> PolynomialStatistics:
        """Return the statistics of all rows that were added, see `PolynomialSums.finished`."""
        moments, amounts = jax.tree.map(np.asarray, self._totals)
        powers = self.radius ** np.arange(self.degree + 1.0)
        rising, falling = amounts * powers
        return PolynomialStatistics(
            degree=self.degree,
            radius=self.radius,
            n_obs=round(self.total_weight),
            moments=tuple(finished_moment(moment, m) for m, moment in enumerate(moments)),
            rising=rising,
            falling=falling,
        )


def _blocks(
    design: Matrix, rows: RowPolynomials, weights: Vector | None, width: int
) -> Iterator[tuple[slice, tuple[Any, Any, list[Any]], Any]]:
    """Send blocks of rows to the device: design, offset, arrays of the response, weights."""
    n_obs = len(design)
    weights = np.ones(n_obs) if weights is None else weights
    most = max(1, entries_together(_CPU_ENTRIES) // width)
    step = int(np.clip(2 ** (most.bit_length() - 1), *_BLOCK_ROWS))
    all_rows = Rows(np.arange(n_obs), weights, (design, rows.offset, *rows.response))
    numbers = range(len(all_rows.arrays))
    for start in range(0, n_obs, step):
        block = slice(start, min(start + step, n_obs))
        some = all_rows.take(block)
        [x, offset, *arrays], mass = DeviceRows(keep=False).block(some, numbers, padded(len(some)))
        yield block, (x, offset, arrays), mass


def _shifted(powers: Any, offset: Any) -> list[Any]:  # noqa: ANN401
    """Return the polynomials in s that have the values of the given ones at s + offset."""
    n = len(powers)
    return [
        sum(comb(j + k, j, exact=True) * powers[j + k] * offset**k for k in range(n - j))
        for j in range(n)
    ]
