"""NUTS for a posterior that is known to be close to normal: its metric, and where chains begin."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from inspect import signature
from typing import Any, Protocol, Self, runtime_checkable

import numpy as np
import pymc as pm
from scipy import sparse
from scipy.linalg import LinAlgError, cho_solve, cholesky
from scipy.sparse.linalg import splu

from pymc_coresets.compat.pymc_api import CpuLeapfrogIntegrator, QuadPotential, RaveledVars, State
from pymc_coresets.diagnostics.importance import KHAT_RELIABLE, pareto_smooth
from pymc_coresets.diagnostics.known_posterior import Proposal
from pymc_coresets.exceptions import SamplingError
from pymc_coresets.options import generator
from pymc_coresets.reading.draws import Draws
from pymc_coresets.reading.quadratic import Curvature

_TUNE = 300  # the step size alone
_TARGET_ACCEPT = 0.9  # with longer steps, trajectories diverge where the tails are not normal
_OWN = frozenset(signature(pm.sample).parameters)
_AT_ONCE = 100  # points
_SLOWER = 20  # SuperLU beside LAPACK, for each multiplication
_MORE, _MOST = 1e-3, 1e3  # of the diagonal, added where a matrix is not definite
_NOTHING = 1e-9  # of the largest difference in a row
_OTHER_STARTS = {"step", "init", "initvals", "nuts", "nuts_sampler_kwargs", "n_init"}


class Factor:
    """A root R of a symmetric positive definite matrix, ``R R' = matrix``.

    O(p^3) for a dense matrix; a sparse one is decomposed by SuperLU without pivoting, in an order
    that keeps the factor sparse.

    Parameters
    ----------
    matrix : ndarray or csr_array, of shape (p, p)
    order : ndarray of int, of shape (p,), optional
        That of the factor of a sparse matrix with entries in the same places, `Factor.order`: to
        find one takes ten times as long as the decomposition.

    Raises
    ------
    LinAlgError
        If it is not positive definite.

    Examples
    --------
    >>> matrix = np.array([[4.0, 1.0], [1.0, 3.0]])
    >>> for factor in (Factor(matrix), Factor(sparse.csr_array(matrix))):
    ...     root = np.column_stack([factor.root_times(z) for z in np.eye(2)])
    ...     (factor.solve(matrix[0]).round(12), (root @ root.T).round(12).tolist())
    (array([1., 0.]), [[4.0, 1.0], [1.0, 3.0]])
    (array([1., 0.]), [[4.0, 1.0], [1.0, 3.0]])
    >>> Factor(2 * factor.matrix, factor.order).solve(matrix[0]).round(12)
    array([0.5, 0. ])
    """

    def __init__(self, matrix: Curvature, order: np.ndarray | None = None) -> None:
        self.matrix, self.order, self._given = matrix, order, order
        if isinstance(matrix, np.ndarray):
            self._root = cholesky(matrix, lower=True)
            return
        try:
            self._lu: Any = splu(
                sparse.csc_array(matrix if order is None else matrix[order][:, order]),
                permc_spec="MMD_AT_PLUS_A" if order is None else "NATURAL",
                diag_pivot_thresh=0.0,
                options={"SymmetricMode": True},
            )
        except RuntimeError as error:
            raise LinAlgError("The matrix is singular.") from error
        pivots, places = self._lu.U.diagonal(), self._lu.perm_r
        if not (np.array_equal(places, self._lu.perm_c) and (pivots > 0).all()):
            raise LinAlgError("The matrix is not positive definite.")
        self._root = sparse.csr_array(self._lu.L * np.sqrt(pivots))
        self._places = places if order is None else places[np.argsort(order)]
        self.order = np.argsort(self._places)

    @classmethod
    def near(cls, matrix: Curvature) -> Self:
        """Decompose a matrix, with as much more on its diagonal as makes it positive definite.

        Raises
        ------
        SamplingError
            If nothing makes it so.
        """
        diagonal, more = np.abs(matrix.diagonal()), 0.0
        while more < _MOST:
            try:
                added = sparse.diags_array(more * diagonal)
                return cls(
                    matrix + added if isinstance(matrix, np.ndarray) else (matrix + added).tocsr()
                )
            except (LinAlgError, ValueError):
                more = max(10 * more, _MORE)
        raise SamplingError(
            "The posterior has no precision where its draws are: it is improper, as with a flat "
            "prior of what the data do not determine. Give all variables a proper prior."
        )

    def solve(self, x: np.ndarray) -> np.ndarray:
        """Return ``matrix^-1 x``, for x of shape (p,) or (p, n)."""
        if isinstance(self.matrix, np.ndarray):
            return np.asarray(cho_solve((self._root, True), x))
        if self._given is None:
            return np.asarray(self._lu.solve(x))
        solution: np.ndarray = self._lu.solve(x[self._given])[np.argsort(self._given)]
        return solution

    @property
    def log_determinant(self) -> float:
        """That of the matrix."""
        return 2 * float(np.log(self._root.diagonal()).sum())

    @property
    def n_operations(self) -> float:
        """About how many multiplications the decomposition takes, or could take in that time."""
        p = self.matrix.shape[0]
        if isinstance(self.matrix, np.ndarray):
            return float(p**3 / 3)
        return float(_SLOWER * self._root.nnz**2 / max(p, 1))

    def root_times(self, z: np.ndarray) -> np.ndarray:
        """Return ``R z``, (p,): of covariance `matrix` where z is standard normal."""
        product: np.ndarray = self._root @ z
        return product if isinstance(self.matrix, np.ndarray) else product[self._places]

    def draw_inverse(self, n_draws: int, *, rng: np.random.Generator) -> np.ndarray:
        """Draw (n_draws, p) from a normal distribution of this precision, around zero."""
        z = rng.standard_normal((n_draws, self.matrix.shape[0]))
        draws: np.ndarray = self.solve(np.stack([self.root_times(e) for e in z], axis=1)).T
        return draws

    def squares(self, x: np.ndarray) -> np.ndarray:
        """Return ``x_i' matrix x_i`` for points (n_points, p), as (n_points,)."""
        squares: np.ndarray = np.einsum("ij,ji->i", x, self.matrix @ x.T)
        return squares

    def __reduce__(self) -> tuple[type[Self], tuple[Curvature]]:
        return type(self), (self.matrix,)


@dataclass(frozen=True, eq=False)
class NormalAround:
    """A normal distribution of a precision that may be sparse.

    Parameters
    ----------
    location : ndarray of shape (n_dims,)
    factor : Factor
        Of its precision.

    Examples
    --------
    >>> found = NormalAround(np.ones(2), Factor(sparse.csr_array(np.diag([4.0, 1.0]))))
    >>> draws, logq = found.draw(1_000, rng=np.random.default_rng(1))
    >>> draws.mean(axis=0).round(1), draws.std(axis=0).round(1)
    (array([1., 1.]), array([0.5, 1. ]))
    """

    location: np.ndarray
    factor: Factor

    @property
    def n_products(self) -> float:
        """See `KnownDensity`."""
        return float(len(self.location) ** 2)

    def draw(self, n_draws: int, *, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        """Return draws (n_draws, n_dims), and the log-density there up to a constant."""
        away = self.factor.draw_inverse(n_draws, rng=rng)
        return self.location + away, (self.factor.log_determinant - self.factor.squares(away)) / 2


@runtime_checkable
class OwnMetric(Protocol):
    """A distribution that knows how far the posterior extends, which may be further than itself."""

    @property
    def metric(self) -> Factor | None:
        """Of its precision."""


class PrecisionPotential(QuadPotential):  # type: ignore[misc] # PyMC's are not typed
    """PyMC's kinetic energy with a precision matrix in the place of variances.

    Parameters
    ----------
    factor : Factor
        Of the precision, (n_dims, n_dims).
    rng : numpy.random.Generator

    Examples
    --------
    >>> potential = PrecisionPotential(Factor(np.diag([4.0, 1.0])), np.random.default_rng(1))
    >>> potential.velocity(np.ones(2)), potential.energy(np.ones(2))
    (array([0.25, 1.  ]), 0.625)
    """

    dtype = np.dtype(float)

    def __init__(self, factor: Factor, rng: np.random.Generator) -> None:
        super().__init__(rng)
        self._factor = factor
        # For thousands of vectors, one after the other: a third of what two triangles take.
        matrix = factor.matrix
        self._inverse = (
            factor.solve(np.eye(len(matrix))) if isinstance(matrix, np.ndarray) else None
        )

    def _solve(self, x: np.ndarray) -> np.ndarray:
        solution: np.ndarray = self._factor.solve(x) if self._inverse is None else self._inverse @ x
        return solution

    def velocity(self, x: np.ndarray, out: np.ndarray | None = None) -> np.ndarray | None:
        """Return the velocity for a momentum, or write it into `out`."""
        found = self._solve(x)
        if out is None:
            return found
        out[:] = found
        return None

    def energy(self, x: np.ndarray, velocity: np.ndarray | None = None) -> float:
        """Return the kinetic energy of a momentum."""
        return float(x @ (self._solve(x) if velocity is None else velocity)) / 2

    def velocity_energy(self, x: np.ndarray, v_out: np.ndarray) -> float:
        """Write the velocity for a momentum into `v_out`, and return the kinetic energy."""
        self.velocity(x, v_out)
        return float(x @ v_out) / 2

    def random(self) -> np.ndarray:
        """Draw a momentum."""
        return self._factor.root_times(self.rng.normal(size=self._factor.matrix.shape[0]))


class _Accelerated(State):  # type: ignore[misc]
    """PyMC's state, with the velocity that its gradient adds in a unit of time."""

    acceleration: np.ndarray


def _accelerated(state: State, acceleration: np.ndarray) -> _Accelerated:
    found = _Accelerated(*state)
    found.acceleration = acceleration
    return found


class PrecisionLeapfrog(CpuLeapfrogIntegrator):  # type: ignore[misc]
    """PyMC's leapfrog steps with one solution of the metric's equations each, where it has two.

    Velocities are linear in momenta, and what the gradient at a point adds to them is the same at
    the end of one step and at the beginning of the next.

    Parameters
    ----------
    potential : PrecisionPotential
    density : ValueGradFunction
        That of PyMC.
    """

    def compute_state(self, q: RaveledVars, p: np.ndarray) -> _Accelerated:
        """Return the state at a position and a momentum."""
        state = super().compute_state(q, p)
        return _accelerated(state, self._potential.velocity(state.q_grad))

    def _step(self, epsilon: float, state: _Accelerated) -> _Accelerated:
        half = epsilon / 2
        v = state.v + half * state.acceleration
        q = state.q._replace(data=state.q.data + epsilon * v)
        logp, gradient = self._logp_dlogp_func(q.data, q.point_map_info)
        acceleration = self._potential.velocity(gradient)
        p, v = state.p + half * (state.q_grad + gradient), v + half * acceleration
        energy = self._potential.energy(p, v) - logp
        moved = state.index_in_trajectory + int(np.sign(epsilon))
        return _accelerated(State(q, p, v, gradient, energy, logp, moved), acceleration)


def sparse_differences(
    function: Callable[[np.ndarray], np.ndarray], x: np.ndarray, steps: np.ndarray
) -> sparse.csr_array:
    """Return the derivatives of a function by central differences, without those that are zero.

    Parameters
    ----------
    function : callable
        Takes points (n_points, n_dims), and returns values (n_points, p).
    x, steps : ndarray of shape (n_dims,)

    Returns
    -------
    csr_array of shape (n_dims, p)

    Examples
    --------
    >>> sparse_differences(lambda x: x[:, :1] ** 2, np.ones(2), np.full(2, 0.5)).toarray()
    array([[2.],
           [0.]])
    """
    parts = []
    for some in np.array_split(np.arange(len(x)), -(-len(x) // _AT_ONCE)):
        moved = np.zeros((len(some), len(x)))
        moved[np.arange(len(some)), some] = steps[some]
        change = function(x + moved) - function(x - moved)
        size = np.abs(change)
        change[size <= _NOTHING * size.max(axis=1, keepdims=True)] = 0.0
        parts.append(sparse.csr_array(change / (2 * steps[some, None])))
    return sparse.csr_array(sparse.vstack(parts, "csr"))


def asks_for_nuts(options: Mapping[str, Any]) -> bool:
    """Whether options of `pm.sample` say how NUTS is to begin, or are those of a step method.

    Examples
    --------
    >>> asks_for_nuts({"draws": 100, "target_accept": 0.9}), asks_for_nuts({"draws": 100})
    (True, False)
    """
    return bool(_OTHER_STARTS & options.keys() or options.keys() - _OWN)


def known_metric(
    model: pm.Model, known: Proposal[Draws], options: Mapping[str, Any]
) -> dict[str, Any]:
    """Return options of `pm.sample` for a posterior near a known distribution.

    NUTS adapts a diagonal metric by default, over a thousand steps.  In the coordinates of the
    posterior's own covariance its trajectories are short, however correlated the variables are, and
    only the step size is left to tune.

    Parameters
    ----------
    model : pm.Model
        All its free variables are continuous.
    known : Proposal
        Near the posterior, in the model's unconstrained space: its covariance or precision gives
        the metric, and some of its draws the starting points of the chains, of which each mode has
        some as far as there are enough of them.
    options : mapping of str
        What `pm.sample` would be passed, with ``chains`` and ``compile_kwargs``.  It comes back
        unchanged where it says itself how NUTS is to begin, or the importance weights of the
        proposal are not reliable.

    Returns
    -------
    dict of str

    Examples
    --------
    >>> with pm.Model() as model:
    ...     mu = pm.Normal("mu", sigma=3.0)
    >>> from pymc_coresets.sampling.proposal import HeavyTailed
    >>> around = HeavyTailed(np.zeros(1), np.eye(1) / 3)
    >>> draws = Draws({"mu": np.linspace(-4.0, 4.0, 50)})
    >>> known = Proposal(draws=draws, log_ratios=np.zeros(50), around=around)
    >>> found = known_metric(model, known, {"chains": 2, "compile_kwargs": {}})
    >>> found["step"].potential.velocity(np.ones(1)), len(found["initvals"])
    (array([9.]), 2)
    """
    khat = pareto_smooth(known.log_ratios[None]).pareto_khat
    if _OTHER_STARTS & options.keys() or khat >= KHAT_RELIABLE:
        return dict(options)
    rng, around = generator(options.get("random_seed")), known.around
    if isinstance(around, OwnMetric):
        around = around.metric
    # What is no parameter of its own, `pm.sample` hands on to the step method.
    of_nuts = options.keys() - _OWN
    stream = rng.spawn(1)[0]
    by: dict[str, Any] = (
        {"potential": PrecisionPotential(around, stream)}
        if isinstance(around, Factor)
        else {"scaling": around.covariance, "is_cov": True}
    )
    step = pm.NUTS(
        **by,
        model=model,
        compile_kwargs=options["compile_kwargs"],
        rng=stream,
        **{"target_accept": _TARGET_ACCEPT} | {name: options[name] for name in of_nuts},
    )
    if isinstance(around, Factor):
        density = step._logp_dlogp_func  # noqa: SLF001 (which PyMC keeps under no other name)
        step.integrator = PrecisionLeapfrog(step.potential, density)
    n_chains = options["chains"]
    chosen = known.draws.take(_beginnings(known, n_chains, rng))
    return {"tune": _TUNE} | {
        **{name: value for name, value in options.items() if name not in of_nuts},
        "step": step,
        "initvals": [
            {name: values[chain] for name, values in chosen.values.items()}
            for chain in range(n_chains)
        ],
    }


def _beginnings(known: Proposal[Draws], n_chains: int, rng: np.random.Generator) -> np.ndarray:
    """Choose draws at which chains begin: next to one mode after another."""
    n_draws = known.draws.n_draws
    if known.modes is None or len(known.modes) == 1:
        return rng.choice(n_draws, n_chains, replace=n_chains > n_draws)
    nearest = known.modes.nearest(known.draws.values)
    which = [np.flatnonzero(nearest == mode) for mode in range(len(known.modes))]
    which = [draws for draws in which if len(draws)]
    return np.array([rng.choice(which[chain % len(which)]) for chain in range(n_chains)])
