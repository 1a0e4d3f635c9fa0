"""A model's potentials as a function of JAX: of one row at one draw, and mapped over both."""

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, partial
from typing import Any

import numpy as np
import pytensor.tensor as pt
from pytensor.graph import Variable, clone_replace

from pymc_coresets.compat.jax_api import in_double, in_single, jax, jnp, translated
from pymc_coresets.exceptions import UnsupportedModelError
from pymc_coresets.reading.folding import inline_graphs
from pymc_coresets.reading.pushdown import RowArray
from pymc_coresets.reading.unconstrained import Unconstrained

_ROUNDING = 16.0  # units in the last place, below which deviations are rounding errors
# What JAX raises while it follows a function that needs values where there are but shapes.
_UNTRACEABLE = (NotImplementedError, TypeError, ValueError, IndexError)


class JaxKernel:
    """The potentials of rows as functions of JAX, which JAX compiles once for each shape.

    PyTensor's graph is that of one row at one draw, with all shapes known.  JAX maps it over rows
    and draws: a linear predictor becomes one matrix product.

    Parameters
    ----------
    loglik : Variable
        The potentials, a vector.
    n_rows : Variable
        Their number, an input.
    parameters : mapping of str to Variable
        Further inputs.
    rows : mapping from int to RowArray
        The arrays of rows that are inputs, by their number.
    dtype : {"float64", "float32"}
        Of the potentials of single rows; all sums are in float64.

    Raises
    ------
    UnsupportedModelError
        If PyTensor has no translation of an operation, or JAX cannot compile it.

    Examples
    --------
    >>> import pymc as pm
    >>> from pymc_coresets.potentials.evaluation import LogLikelihood
    >>> from pymc_coresets.potentials.backends.evaluator import Jax
    >>> from pymc_coresets.reading.observations import find_observations
    >>> with pm.Model() as model:
    ...     y = pm.Normal("y", pm.Normal("mu"), 1.0, observed=np.arange(2.0))
    >>> kernel = LogLikelihood(find_observations(model), backend=Jax()).kernel
    >>> with in_double():
    ...     kernel.values([np.zeros(1)], [np.arange(2.0)], 2).round(3)
    Array([[-0.919, -1.419]], dtype=float64)
    """

    def __init__(
        self,
        loglik: Variable,
        n_rows: Variable,
        parameters: Mapping[str, Variable],
        rows: Mapping[int, RowArray],
        *,
        dtype: str,
    ) -> None:
        self.arrays, self._single = list(rows), dtype == "float32"
        self._parameters = dict(parameters)
        self._axes = [row.axis for row in rows.values()]
        given = [_fixed(v, v.type.shape) for v in parameters.values()]
        of_rows = [_fixed(row.placeholder, _one_row(row)) for row in rows.values()]
        known: dict[Variable, Variable] = dict(zip(parameters.values(), given, strict=True))
        known |= zip((row.placeholder for row in rows.values()), of_rows, strict=True)
        known[n_rows] = pt.constant(np.array(1, dtype=n_rows.type.dtype))
        [graph] = clone_replace([loglik], known, rebuild_strict=False)
        self._one = _translated([*given, *of_rows], [pt.sum(graph)])
        self._require_traceable(given, of_rows)

    def _require_traceable(self, given: Sequence[Variable], of_rows: Sequence[Variable]) -> None:
        """Have JAX follow the function and its gradient, without computing anything."""
        draw = [_shaped(v, v.type.shape) for v in given]
        others = ([*v.type.shape] for v in of_rows)
        block = [
            _shaped(v, (1, *(shape[:axis] + shape[axis + 1 :])))
            for v, shape, axis in zip(of_rows, others, self._axes, strict=True)
        ]
        smooth = [i for i, v in enumerate(given) if v.type.dtype.startswith("float")]

        def total(some: Sequence[Any], all_given: list[Any], arrays: Sequence[Any]) -> Any:  # noqa: ANN401
            given = [*all_given]
            for i, value in zip(smooth, some, strict=True):
                given[i] = value
            return self._of_rows(given, arrays, 1).sum()

        with in_double():
            try:
                jax.eval_shape(jax.grad(total), [draw[i] for i in smooth], draw, block)
                draws = [_shaped(v, (1, *v.type.shape)) for v in given]
                jax.eval_shape(partial(self.potentials, n_rows=1), draws, block)
            except _UNTRACEABLE as error:
                raise _refusal(error) from error

    # -- what is compiled ----------------------------------------------------------------------

    @cached_property
    def values(self) -> Callable[..., Any]:
        """Function of draws and rows: the potentials (n_draws, n_rows)."""
        return _compiled(self.potentials, "n_rows")

    @cached_property
    def look(self) -> Callable[..., Any]:
        """Function of draws, rows and weights, in `n_parts` parts of equally many rows.

        It returns the weighted sum of the centred potentials (n_draws,), and the standard
        deviation of each row over the draws.
        """
        return _compiled(self._look, "n_parts")

    def slopes(self, space: Unconstrained) -> Callable[..., Any]:
        """Return a function of points (n_points, D), rows and weights, in `n_parts` parts.

        It returns weighted log-likelihoods and their gradients, in float64.
        """
        x = pt.vector("x", dtype="float64", shape=(space.n_dims,))
        graphs = space.constrained(x)
        constrained = _translated([x], [graphs[name] for name in self._parameters])
        return _compiled(partial(self._slopes, constrained), "n_parts")

    # -- of what they are made -----------------------------------------------------------------

    def potentials(self, given: Sequence[Any], arrays: Sequence[Any], n_rows: int) -> Any:  # noqa: ANN401
        """Return the potentials (n_draws, n_rows), for what is compiled together with them."""
        if not self._single:
            return jax.vmap(lambda draw: self._of_rows(draw, arrays, n_rows))(list(given))
        given, arrays = [_halved(a) for a in given], [_halved(a) for a in arrays]
        with in_single():
            return jax.vmap(lambda draw: self._of_rows(draw, arrays, n_rows))(given)

    def _of_one(self, given: Sequence[Any], row: Sequence[Any]) -> Any:  # noqa: ANN401
        """Potential of one row at one draw."""
        placed = [jnp.expand_dims(r, a) for r, a in zip(row, self._axes, strict=True)]
        return self._one(*given, *placed)[0]

    def _of_rows(self, given: Sequence[Any], arrays: Sequence[Any], n_rows: int) -> Any:  # noqa: ANN401
        """Potentials (n_rows,) at one draw."""
        # The number keeps the map from being over nothing, where no array of rows is used.
        numbered = list(arrays), jnp.arange(n_rows)
        return jax.vmap(lambda row, _number: self._of_one(given, row))(*numbered)

    def _look(self, given: list[Any], arrays: list[Any], weights: Any, *, n_parts: int) -> Any:  # noqa: ANN401
        n_rows = weights.shape[0] // n_parts

        def add(total: Any, part: Any) -> tuple[Any, Any]:  # noqa: ANN401
            some, mass = part
            found = self.potentials(given, some, n_rows)
            rounding = _ROUNDING * jnp.finfo(found.dtype).eps
            values = found.astype(jnp.float64)
            means = values.mean(axis=0)
            centred = values - jnp.where(jnp.isfinite(means), means, 0.0)
            # Rows that pad the block are absent, even where they are infinite.
            total += jnp.where(mass > 0, centred * mass, 0.0).sum(axis=1)
            deviations = jnp.sqrt(jnp.square(centred).mean(axis=0))
            return total, jnp.where(deviations > rounding * jnp.abs(means), deviations, 0.0)

        start = jnp.zeros(given[0].shape[0], jnp.float64)
        total, deviations = jax.lax.scan(add, start, _parts((arrays, weights), n_parts))
        return total, deviations.ravel()

    def _slopes(
        self,
        constrained: Callable[..., Any],
        points: Any,  # noqa: ANN401
        arrays: list[Any],
        weights: Any,  # noqa: ANN401
        *,
        n_parts: int,
    ) -> Any:  # noqa: ANN401
        n_rows = weights.shape[0] // n_parts

        def weighted(x: Any, some: Any, mass: Any) -> Any:  # noqa: ANN401
            values = self._of_rows(constrained(x), some, n_rows)
            return jnp.where(mass > 0, values * mass, 0.0).sum()

        slopes = jax.vmap(jax.value_and_grad(weighted), (0, None, None))

        def add(total: Any, part: Any) -> tuple[Any, None]:  # noqa: ANN401
            return jax.tree.map(jnp.add, total, slopes(points, *part)), None

        start = jnp.zeros(points.shape[0], jnp.float64), jnp.zeros_like(points)
        return jax.lax.scan(add, start, _parts((arrays, weights), n_parts))[0]


def _compiled(function: Callable[..., Any], number: str) -> Callable[..., Any]:
    """Have JAX compile a function, anew for each shape and each value of one number."""
    compiled: Callable[..., Any] = jax.jit(function, static_argnames=number)
    return compiled


def _fixed(v: Variable, shape: Sequence[int]) -> Variable:
    """Return an input like another one, of known shape."""
    return pt.tensor(dtype=v.type.dtype, shape=tuple(shape))


def _shaped(v: Variable, shape: Sequence[int]) -> Any:  # noqa: ANN401
    return jax.ShapeDtypeStruct(tuple(shape), v.type.dtype)


def _one_row(row: RowArray) -> list[int]:
    return [1 if i == row.axis else n for i, n in enumerate(row.values.shape)]


def _parts(tree: Any, n_parts: int) -> Any:  # noqa: ANN401
    """Divide the first axis of all arrays into parts of the same length."""
    return jax.tree.map(lambda a: a.reshape(n_parts, -1, *a.shape[1:]), tree)


def _halved(array: Any) -> Any:  # noqa: ANN401
    """Return an array with half the bits, where it has 64."""
    smaller = {"float64": jnp.float32, "int64": jnp.int32, "uint64": jnp.uint32}
    dtype = smaller.get(str(array.dtype))
    return array if dtype is None else array.astype(dtype)


def _translated(inputs: Sequence[Variable], outputs: Sequence[Variable]) -> Callable[..., Any]:
    with in_double():
        try:
            return translated(inputs, outputs, inline_graphs)
        except NotImplementedError as error:
            raise _refusal(error) from error


def _refusal(error: Exception) -> UnsupportedModelError:
    reason = str(error).strip().partition("\n")[0].rstrip(".")
    return UnsupportedModelError(
        f"PyTensor cannot translate this model into JAX: {reason}. Use backend='numba'."
    )
