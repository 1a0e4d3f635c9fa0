"""Sums of the polynomials of rows by JAX, on its default device."""

from typing import Any

import numpy as np
import pytensor.tensor as pt

from pymc_coresets.compat.jax_api import in_double, jax, jnp
from pymc_coresets.compat.pytensor_api import Variable, clone_replace
from pymc_coresets.exceptions import UnsupportedModelError
from pymc_coresets.glm.polynomial.chebyshev import chebyshev_fit, shifted_powers
from pymc_coresets.glm.polynomial.multi_indices import monomial_levels, monomials
from pymc_coresets.glm.polynomial.statistics import PolynomialStatistics
from pymc_coresets.glm.predictor.row_density import RowDensity
from pymc_coresets.glm.predictor.seen_rows import RowsInMemory
from pymc_coresets.potentials.backends.device_rows import DeviceRows, entries_together, padded
from pymc_coresets.potentials.backends.jax_kernel import JaxKernel
from pymc_coresets.rows.values import Rows
from pymc_coresets.solving.problem import Matrix

__all__ = ["DevicePolynomials"]

_COMPARED = 100  # rows
_CPU_ENTRIES = 2**19  # of the largest array of a block
_BLOCK_ROWS = (512, 2**17)  # at least and at most


class DevicePolynomials:
    """The polynomials of a generalised linear model's rows, computed and used on JAX's device.

    A row's log-likelihoods at the nodes, its polynomial and its monomials stay there; a block's
    sums come back.  Everything is in float64.

    Parameters
    ----------
    density : RowDensity
        Log-density of a row as a function of its predictor.
    degree : int

    Raises
    ------
    UnsupportedModelError
        If the density cannot be translated, or comes out differently.

    Examples
    --------
    >>> import pymc as pm
    >>> from pymc_coresets.glm.predictor.linear import find_linear_predictor
    >>> from pymc_coresets.reading.observations import find_observations
    >>> with pm.Model() as model:
    ...     y = pm.Bernoulli("y", logit_p=pm.Normal("a"), observed=[0, 1, 1])
    >>> found = find_linear_predictor(find_observations(model))
    >>> rows = RowsInMemory(found, np.arange(3), np.ones(3))
    >>> DevicePolynomials(found.density, 2).statistics(rows, 4.0).moments[2].round(3)
    array([[-0.245]])
    """

    def __init__(self, density: RowDensity, degree: int) -> None:
        self.degree = degree
        [eta] = density.etas
        one = pt.scalar("eta", dtype=eta.type.dtype)
        at_one: dict[Variable, Variable] = {eta: one[None]}
        [graph] = clone_replace([density.graph], at_one, rebuild_strict=False)
        rows = dict(enumerate(density.rows))
        self._kernel = JaxKernel(graph, density.n_rows, {"eta": one}, rows, dtype="float64")
        self._of_block, self._reach = jax.jit(self._sums), jax.jit(self._reached)
        self._verify(density)

    def block_rows(self, width: int) -> int:
        """Return how many rows a block has whose rows need that many entries each."""
        most = max(1, entries_together(_CPU_ENTRIES) // width)
        return int(np.clip(2 ** (most.bit_length() - 1), *_BLOCK_ROWS))

    def statistics(self, rows: RowsInMemory, radius: float) -> PolynomialStatistics | None:
        """Return the statistics of a block of rows of a dense design.

        None if the log-likelihood of a row is not finite at a node.
        """
        with in_double():
            given = [jnp.asarray(a) for a in chebyshev_fit(self.degree, radius)]
            *found, finite = self._of_block(*given, *_sent(rows))
        if not finite:
            return None
        moments, amounts = jax.tree.map(np.asarray, found)
        rising, falling = amounts * radius ** np.arange(self.degree + 1.0)
        return PolynomialStatistics(
            degree=self.degree,
            radius=float(radius),
            n_obs=float(rows.base_weights.sum()),
            moments=tuple(moments),
            rising=rising,
            falling=falling,
        )

    def compared(
        self, rows: RowsInMemory, radius: float, coefficients: Matrix
    ) -> tuple[float, float]:
        """Compare polynomials and log-likelihoods of a block at the predictors of some draws.

        Returns
        -------
        tuple of float
            Number of predictors outside the radius, and the largest error in nats.
        """
        with in_double():
            given = [jnp.asarray(a) for a in chebyshev_fit(self.degree, radius)]
            found = self._reach(radius, *given, jnp.asarray(coefficients), *_sent(rows))
        outside, error = map(float, found)
        return outside, error

    # -- what is compiled ----------------------------------------------------------------------

    def _sums(self, *given: Any) -> tuple[list[Any], Any, Any]:  # noqa: ANN401 - arrays of JAX
        """Return the moments, the amounts, and whether all log-likelihoods were finite."""
        nodes, fit, x, offset, arrays, weights = given
        values = self._kernel.potentials([nodes], arrays, len(offset))
        powers = [power * weights for power in shifted_powers(fit.T @ values, offset)]
        levels = monomial_levels(x.shape[1], -(-self.degree // 2))
        sides = [jnp.ones((len(offset), 1)), *monomials(x, levels)]
        moments = [
            (sides[m // 2] * power[:, None]).T @ sides[m - m // 2] for m, power in enumerate(powers)
        ]
        signs = [[jnp.maximum(sign * power, 0).sum() for power in powers] for sign in (1, -1)]
        return moments, jnp.array(signs), jnp.isfinite(values).all()

    def _reached(self, *given: Any) -> tuple[Any, Any]:  # noqa: ANN401 - arrays of JAX
        """Return the number of predictors outside the radius, and the largest error."""
        radius, nodes, fit, theta, x, offset, arrays, counts = given
        powers = fit.T @ self._kernel.potentials([nodes], arrays, len(offset))
        eta = theta @ x.T + offset
        polynomial = jnp.zeros_like(eta)
        for power in powers[::-1]:
            polynomial = polynomial * eta + power
        error = jnp.abs(self._kernel.own_potentials([eta], arrays) - polynomial).max()
        return ((jnp.abs(eta) > radius) @ counts).sum(), error

    def _verify(self, density: RowDensity) -> None:
        """Compare the density at the nodes with what PyTensor makes of it without JAX."""
        arrays = [np.moveaxis(row.values, row.axis, 0)[:_COMPARED] for row in density.rows]
        n_rows = len(arrays[0]) if arrays else 1
        nodes, _ = chebyshev_fit(self.degree, 1.0)
        expected = density.at_one(nodes[:, None], slice(0, n_rows), n_rows, compiled=False)
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


def _sent(rows: RowsInMemory) -> tuple[Any, Any, list[Any], Any]:
    """Send rows to the device: design, offset, arrays of the response, weights."""
    [line], arrays = rows.lines, rows.response if rows.found.density.rows else []
    sent = Rows(rows.which, rows.base_weights, (line.design, line.offset, *arrays))
    numbers = range(len(sent.arrays))
    [x, offset, *rest], mass = DeviceRows(keep=False).block(sent, numbers, padded(len(sent)))
    return x, offset, rest, mass
