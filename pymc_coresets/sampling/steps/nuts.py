"""NUTS as `pm.sample` offers it: its options and failures, and a metric that is known before."""

from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from inspect import signature
from typing import Any, Literal, Protocol, Self, get_args, runtime_checkable

import numpy as np
import pymc as pm
import xarray as xr

from pymc_coresets.compat.pymc_api import (
    CpuLeapfrogIntegrator,
    NDArray,
    ParallelSamplingError,
    PyMCSamplingError,
    QuadPotential,
    RaveledVars,
    State,
)
from pymc_coresets.compat.pytensor_api import compiling, untraced
from pymc_coresets.diagnostics.importance import KHAT_RELIABLE, pareto_smooth
from pymc_coresets.diagnostics.known_posterior import Proposal
from pymc_coresets.exceptions import InvalidOptionError, SamplingError
from pymc_coresets.options import flag, generator, one_of, whole_number
from pymc_coresets.reading.draws import Draws
from pymc_coresets.sampling.normal import CholeskyFactor

#: NUTS as `pm.sample` offers it.
type NutsSampler = Literal["pymc", "nutpie", "numpyro", "blackjax"]

#: Samplers that need JAX.
ON_JAX = {"numpyro", "blackjax"}

_LEAST = {"draws": 1, "tune": 0, "chains": 1, "cores": 1}  # of what `pm.sample` is passed
_OPTIONAL = {"tune", "chains", "cores"}
_CHAINS = 4  # enough for R-hat (Vehtari et al. 2021)


def sample_by_pymc(model: pm.Model, **options: Any) -> xr.DataTree:  # noqa: ANN401 - of pm.sample
    """Call `pm.sample`, and name the model where a chain cannot start.

    Raises
    ------
    SamplingError
    """
    try:
        with untraced():
            idata: xr.DataTree = pm.sample(model=model, **options)
    except (PyMCSamplingError, ParallelSamplingError) as error:
        raise SamplingError(
            f"pm.sample failed: {text_of(error)}. Give initvals=... where the log-density is "
            "finite. What it sampled is the attribute .model, and not your own model: "
            ".model.debug() says more."
        ) from error
    return idata


def text_of(error: Exception) -> str:
    """Return what another package says, without its advice, which is about an unnamed model."""
    text = str(error)
    for more in (": SamplerWarning(", "You can call `model.debug()`", "Stack backtrace:"):
        text = text.partition(more)[0]
    return " ".join(text.split()).rstrip(".")


def sampling_options(nuts_sampler: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of `pm.sample`, four chains among them, after a pass at the common ones.

    Raises
    ------
    InvalidOptionError
        If one is out of range, the sampler's package is not installed, or the options would leave
        its own model or a DataTree.

    Examples
    --------
    >>> sampling_options("pymc", {"draws": 100, "tune": None})
    {'chains': 4, 'draws': 100}
    """
    if "model" in options:
        raise InvalidOptionError(
            "sample() samples its own model: leave model=... out, or call pm.sample."
        )
    one_of("nuts_sampler", nuts_sampler, get_args(NutsSampler.__value__))
    if find_spec(nuts_sampler) is None:
        extra = "jax" if nuts_sampler in ON_JAX else nuts_sampler
        raise InvalidOptionError(
            f"nuts_sampler={nuts_sampler!r} needs the package {nuts_sampler}: "
            f'pip install "pymc-coresets[{extra}]".'
        )
    options = {n: v for n, v in options.items() if v is not None or n not in _OPTIONAL}
    for name, least in _LEAST.items():
        if name in options:
            whole_number(name, options[name], least=least)
    generator(options.get("random_seed"))
    if not flag("return_inferencedata", options.get("return_inferencedata", True)):
        raise InvalidOptionError(
            "return_inferencedata=False: draws outside a DataTree can be neither checked nor "
            "re-weighted. Leave it out, or call pm.sample(model=....model)."
        )
    return {"chains": _CHAINS} | options


class SharedTrace(NDArray):  # type: ignore[misc] # PyMC's are not typed
    """Draws of one chain; its copies, which `pm.sample` makes, are those of others.

    PyMC compiles a function for each chain that computes what is recorded from a point of the
    unconstrained space, which takes longer than four thousand draws of a cheap density.

    Examples
    --------
    >>> with pm.Model() as model:
    ...     sigma = pm.HalfNormal("sigma")
    ...     options = {"tune": 50, "chains": 2, "cores": 1, "nuts_sampler": "pymc"}
    ...     options |= {"random_seed": 1, "progressbar": False}
    ...     idata = pm.sample(50, trace=SharedTrace.of(model), **options)
    ...     same = pm.sample(50, **options)
    >>> bool((idata["posterior"]["sigma"] == same["posterior"]["sigma"]).all())
    True
    """

    @classmethod
    def of(cls, model: pm.Model, names: Sequence[str] | None = None) -> Self:
        """Compile what is recorded: the variables of these names, by default all."""
        variables = None  # all but those that are observed
        with compiling():
            if names is not None:
                chosen = [v for v in model.unobserved_RVs if v.name in names]
                variables = model.replace_rvs_by_values(chosen)
            return cls(model=model, vars=variables)

    def __copy__(self) -> Self:
        other = object.__new__(type(self))
        other.__dict__ = {**self.__dict__, "samples": {}}
        return other


_TUNE = 300  # the step size alone
_TARGET_ACCEPT = 0.9  # with longer steps, trajectories diverge where the tails are not normal
_OWN = frozenset(signature(pm.sample).parameters)
_OTHER_STARTS = {"step", "init", "initvals", "nuts", "nuts_sampler_kwargs", "n_init"}


@runtime_checkable
class OwnMetric(Protocol):
    """A distribution that knows how far the posterior extends, which may be further than itself."""

    @property
    def metric(self) -> CholeskyFactor | None:
        """Of its precision."""


class PrecisionPotential(QuadPotential):  # type: ignore[misc] # PyMC's are not typed
    """PyMC's kinetic energy with a precision matrix in the place of variances.

    Parameters
    ----------
    factor : CholeskyFactor
        Of the precision, (n_dims, n_dims).
    rng : numpy.random.Generator

    Examples
    --------
    >>> factor, rng = CholeskyFactor(np.diag([4.0, 1.0])), np.random.default_rng(1)
    >>> potential = PrecisionPotential(factor, rng)
    >>> potential.velocity(np.ones(2)), potential.energy(np.ones(2))
    (array([0.25, 1.  ]), 0.625)
    """

    dtype = np.dtype(float)

    def __init__(self, factor: CholeskyFactor, rng: np.random.Generator) -> None:
        super().__init__(rng)
        self._factor = factor
        # For thousands of vectors, one after the other: a third of what two triangles take.
        self._inverse = factor.solve(np.eye(factor.n_dims)) if factor.is_dense else None

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
        return self._factor.root_times(self.rng.normal(size=self._factor.n_dims))


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
    >>> from pymc_coresets.sampling.normal import heavy_tailed
    >>> around = heavy_tailed(np.zeros(1), np.eye(1) / 3)
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
        if isinstance(around, CholeskyFactor)
        else {"scaling": around.covariance, "is_cov": True}
    )
    step = pm.NUTS(
        **by,
        model=model,
        compile_kwargs=options["compile_kwargs"],
        rng=stream,
        **{"target_accept": _TARGET_ACCEPT} | {name: options[name] for name in of_nuts},
    )
    if isinstance(around, CholeskyFactor):
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
