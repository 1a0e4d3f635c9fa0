"""The few numbers through which each row of a model sees the free variables."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pytensor.tensor as pt
from pytensor.graph import Variable
from pytensor.tensor import TensorVariable
from scipy import sparse

from pymc_coresets.exceptions import InvalidDataError, UnsupportedModelError
from pymc_coresets.glm.predictor.affine import Matrix
from pymc_coresets.glm.predictor.row_density import MOST_OWN, MOST_TOGETHER, RowDensity, effects
from pymc_coresets.glm.predictor.row_graph import evenly_spread, spread_rows
from pymc_coresets.reading.draws import DrawsLike
from pymc_coresets.reading.folding import numpy_function
from pymc_coresets.reading.observations import Observations
from pymc_coresets.reading.quadratic import interface_at

_COMPARED = 200  # rows
_DENSE_UP_TO = 1_000  # coefficients
_JITTERS = (0.0, 0.1, 0.5)  # on the unconstrained scale, as `verify` of a model has them


@dataclass(frozen=True, eq=False)
class Line:
    """A predictor of each row, affine in some of the coefficients.

    Parameters
    ----------
    columns : ndarray of int, of shape (k,)
        Which coefficients.
    design : ndarray or csr_array, of shape (n_rows, k)
    offset : ndarray of shape (n_rows,)
    """

    columns: np.ndarray
    design: Matrix
    offset: np.ndarray

    def of(self, rows: slice | np.ndarray) -> "Line":
        """Return that of some rows."""
        return Line(self.columns, self.design[rows], self.offset[rows])

    def refuse_not_finite(self, names: Sequence[str], place: Callable[[int], str]) -> None:
        """Raise `InvalidDataError` if it is not finite in some row, with the names of columns."""
        if not np.isfinite(self.offset).all():
            [n, *_] = np.flatnonzero(~np.isfinite(self.offset))
            raise InvalidDataError(
                f"The offset of the linear predictor is {self.offset[n]} in {place(int(n))}. "
                "Correct the data (such as an exposure of zero, of which the logarithm is taken), "
                "or leave the row out."
            )
        with np.errstate(over="ignore", invalid="ignore"):
            if np.isfinite(self.design.sum()):  # that of finite numbers is finite, or overflows
                return
            total = self.design.sum(axis=0)
        for k in map(int, np.flatnonzero(~np.isfinite(total))):
            column = np.asarray(self.design[:, [k]].sum(axis=1)).ravel()
            bad = np.flatnonzero(~np.isfinite(column))
            if bad.size:
                raise InvalidDataError(
                    f"The covariate of {names[k]!r} is {column[bad[0]]} in "
                    f"{place(int(bad[0]))}. Leave such rows out, or impute them."
                )

    def at(self, coefficients: np.ndarray) -> np.ndarray:
        """Compute the predictor without its offset at (n_draws, p), as (n_draws, n_rows)."""
        return np.asarray((self.design @ coefficients[:, self.columns].T).T)


@dataclass(frozen=True, eq=False, kw_only=True)
class Predictors:
    """A model whose rows see the free variables through few numbers, affine in coefficients c.

    Attributes
    ----------
    observations : Observations
    names : tuple of str
        A label for each coefficient; first those that all rows see as they are.
    coefficients : TensorVariable
        c, of shape (p,): a graph of ``observations.parameters``.  Shared scalars are on their
        unconstrained scale, such as the logarithm of a standard deviation.
    n_shared : int
        Number m of coefficients that all rows see as they are.
    lines : tuple of Line
        The predictors.
    nodes : tuple of Variable
        The same, in the graph of ``observations.loglik``.
    density : RowDensity
    most_own : int
        On how many of the numbers that rows see each may depend, where they see more than four.
    """

    observations: Observations
    names: tuple[str, ...]
    coefficients: TensorVariable
    n_shared: int
    lines: tuple[Line, ...]
    nodes: tuple[Variable, ...]
    density: RowDensity
    most_own: int = MOST_OWN

    @property
    def n_seen(self) -> int:
        """How many numbers rows see, all of them together."""
        return self.n_shared + len(self.lines)

    @property
    def entries_a_row(self) -> int:
        """How many entries of the designs belong to a row: those that are not zero, of sparse ones.

        One at least.
        """
        designs = [line.design for line in self.lines]
        total = sum(d.size if isinstance(d, np.ndarray) else d.nnz for d in designs)
        return max(total // self.observations.n_obs, 1)

    @property
    def is_sparse(self) -> bool:
        """Whether few pairs of coefficients meet in rows, of so many that this matters."""
        large = len(self.names) > _DENSE_UP_TO
        return large and all(sparse.issparse(line.design) for line in self.lines)

    def refuse_not_finite(self, place: Callable[[int], str]) -> None:
        """Raise `InvalidDataError` if a predictor is not finite in some row, with its place."""
        for line in self.lines:
            line.refuse_not_finite([self.names[k] for k in line.columns], place)

    def verify(self) -> None:
        """Compare the density with the model's own, for some rows at three points.

        Raises
        ------
        UnsupportedModelError
            If they differ.
        """
        which = spread_rows(self.observations.n_obs, _COMPARED)
        arrays: dict[Variable, np.ndarray] = {
            row.placeholder: row.take(which) for row in self.observations.rows
        }
        some = replace(
            self,
            lines=tuple(line.of(which) for line in self.lines),
            density=self.density.of_rows(arrays),
        )
        some.compare(arrays, len(which), lambda n: self.observations.place(int(which[n])))

    def compare(
        self, arrays: Mapping[Variable, np.ndarray], n_rows: int, place: Callable[[int], str]
    ) -> None:
        """Compare the density of all these rows with that of the model, see `verify`.

        Parameters
        ----------
        arrays : mapping of Variable to ndarray
            The rows, by the placeholders in the graph of the model.
        n_rows : int
        place : callable
            Says where one of the rows lies.
        """
        at, expected = self._at_points(arrays, n_rows)
        shared, etas = at[:, : self.n_shared], [line.at(at) + line.offset for line in self.lines]
        values = self.density(shared, etas, slice(None), n_rows, compiled=False)
        if not np.isfinite(expected).any():
            raise InvalidDataError(
                "The log-likelihood is not finite at the model's initial point and near it. Give a "
                "better one (initval=...), scale the covariates, or correct the values of "
                "given={...}."
            )
        wrong = np.isfinite(expected) & ~np.isclose(values, expected, rtol=1e-6, atol=1e-8)
        if wrong.any():
            s, n = np.argwhere(wrong)[0]
            raise UnsupportedModelError(
                f"The log-likelihood of {place(int(n))} is {values[s, n]} by the linear "
                f"predictor, but {expected[s, n]} by the model: its structure is not understood. "
                "Please report the model, and use a method for general models."
            )
        if self.n_seen > MOST_TOGETHER:
            self._refuse_many_entries(n_rows, shared, etas)

    def _at_points(
        self, arrays: Mapping[Variable, np.ndarray], n_rows: int
    ) -> tuple[np.ndarray, np.ndarray]:
        """Evaluate coefficients (n_points, p) and the model's log-density (n_points, n_rows)."""
        obs = self.observations
        spread = 2.0 * evenly_spread(obs.space.n_dims) - 1.0
        draws = obs.space.constrain(obs.space.start + np.array(_JITTERS)[:, None] * spread)
        outputs = [self.coefficients, pt.broadcast_to(obs.loglik, (obs.n_rows,))]
        function = numpy_function([*obs.parameters.values(), obs.n_rows, *arrays], outputs)
        points = [
            [np.asarray(draws.values[n][s], v.type.dtype) for n, v in obs.parameters.items()]
            for s in range(draws.n_draws)
        ]
        with np.errstate(all="ignore"):
            results = [function(*p, np.asarray(n_rows), *arrays.values()) for p in points]
        return np.stack([r[0] for r in results]), np.stack([r[1] for r in results])

    def _refuse_many_entries(self, n: int, shared: np.ndarray, etas: Sequence[np.ndarray]) -> None:
        m = self.n_shared

        def density(seen: np.ndarray) -> np.ndarray:
            return self.density(seen[:m, :, 0].T, [*seen[m:]], slice(None), n, compiled=False)

        own = np.zeros((self.n_seen, n), dtype=bool)
        for s, point in enumerate(shared):  # at the first of which products may be zero
            of_all = np.broadcast_to(point[:, None], (m, n))
            middle = np.concatenate([of_all, *(eta[s][None] for eta in etas)])
            own |= effects(density, middle, np.zeros_like(middle)) > 0
        most = int(own.sum(axis=0).max())
        if most > self.most_own:
            raise UnsupportedModelError(f"A row depends on {most} numbers of the free variables.")


def coefficient_draws(found: Predictors, draws: DrawsLike) -> np.ndarray:
    """Compute the coefficients (n_draws, n_coefficients) at draws of the free variables.

    Examples
    --------
    >>> import pymc as pm
    >>> from pymc_coresets.glm.predictor.finding import find_predictors
    >>> from pymc_coresets.reading.observations import find_observations
    >>> with pm.Model() as model:
    ...     eta = pm.Normal("a") * np.arange(3.0)
    ...     y = pm.Bernoulli("y", logit_p=eta, observed=[0, 1, 1])
    >>> found = find_predictors(find_observations(model))
    >>> coefficient_draws(found, {"a": [1.0, 2.0]})
    array([[1.],
           [2.]])
    """
    return interface_at(found.coefficients, found.observations, draws)
