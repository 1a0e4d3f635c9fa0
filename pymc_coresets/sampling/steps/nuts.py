"""NUTS: options of `pm.sample`, known metrics, and warm starts during a build."""

import logging
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from itertools import cycle
from typing import Any, Literal, NamedTuple, Self, get_args

import numpy as np
import pymc as pm
import pytensor
import xarray as xr

from pymc_coresets.compat import pymc_api
from pymc_coresets.compat.pymc_api import PyMCSamplingError, RaveledVars, State
from pymc_coresets.compat.pytensor_api import compiling, untraced
from pymc_coresets.deadline import paced
from pymc_coresets.diagnostics.importance import MIN_DRAWS
from pymc_coresets.exceptions import (
    InvalidOptionError,
    OutOfTimeError,
    SamplingError,
    warn_user,
)
from pymc_coresets.loops.fused_loops import loop_mode
from pymc_coresets.options import flag, generator, one_of, whole_number
from pymc_coresets.sampling.density import Surrogate
from pymc_coresets.sampling.factors.cholesky import CholeskyFactor, DenseFactor
from pymc_coresets.sampling.steps.one_point import OnePoint
from pymc_coresets.sampling.steps.playback import Playback

#: NUTS implementations of `pm.sample`.
type NutsSampler = Literal["pymc", "nutpie", "numpyro", "blackjax"]

#: Samplers that need JAX.
ON_JAX = {"numpyro", "blackjax"}

#: Number of sequential chains of a run inside a build; each needs tuning.
N_CHAINS = 2

_FAILED = "NUTS failed on the posterior of a coreset"

_log = logging.getLogger(__name__)


#: Options of `pm.sample`, by name.
type SampleOptions = dict[str, Any]


def sample_by_pymc(model: pm.Model, **options: Any) -> xr.DataTree:  # noqa: ANN401 - of pm.sample
    """Call `pm.sample`; the error names the model if a chain cannot start.

    Raises
    ------
    SamplingError
    """
    watched = _Watch(options.get("callback") or _do_nothing)
    # Others call nothing, and the draws of a given step are known before they are recorded.
    if options.get("nuts_sampler") == "pymc" and options.get("step") is None:
        options["callback"] = watched
    n_steps = options["chains"] * (options.get("draws", 1_000) + options.get("tune", 1_000))
    step = options.get("step")
    at_start = pymc_api.starting_at(model, step.start if isinstance(step, Playback) else None)
    announced = paced("sampling the coreset by pm.sample", n_steps, "steps")
    try:
        with at_start, untraced(), announced as count:
            if options.get("callback") is watched:
                watched.count = count
                count(0)
            idata: xr.DataTree = pm.sample(model=model, **options)
    except (PyMCSamplingError, pymc_api.ParallelSamplingError) as error:
        raise SamplingError(
            f"pm.sample failed: {text_of(error)}. Give initvals=... with a finite log-density. The "
            "sampled model is the attribute .model, not your own model: see .model.debug()."
        ) from error
    if watched.was_late:
        sizes = idata["posterior"].sizes
        warn_user(
            f"The time_budget was used up: there are {sizes['chain']} chains of {sizes['draw']:,} "
            "draws. Allow more seconds."
        )
    return idata


def _do_nothing(**_: object) -> None:
    """Take what PyMC passes to a callback."""


class _Watch:
    """Announces the time that `pm.sample` will take, and ends it at a deadline.

    With the draws that there are, if there are enough for a check.

    Parameters
    ----------
    other : callable
        The user's own callback.

    Attributes
    ----------
    count : callable
        See `deadline.paced`.
    was_late : bool
    """

    def __init__(self, other: Callable[..., None]) -> None:
        self._other, self._n_draws = other, Counter[int]()
        self.count: Callable[[int], None] = lambda _: None
        self.was_late = False

    def __call__(self, trace: Any, draw: Any) -> None:  # noqa: ANN401 - PyMC's
        """Count one step of a chain."""
        self._other(trace=trace, draw=draw)
        self._n_draws[draw.chain] += not draw.tuning
        try:
            self.count(1)
        except OutOfTimeError:
            if max(self._n_draws.values()) < MIN_DRAWS:
                raise
            self.was_late = True
            raise KeyboardInterrupt from None  # upon which PyMC returns what there is


def text_of(error: Exception) -> str:
    """Return another package's message, without its advice, which is about an unnamed model."""
    text = str(error)
    for more in (": SamplerWarning(", "You can call `model.debug()`", "Stack backtrace:"):
        text = text.partition(more)[0]
    return " ".join(text.split()).rstrip(".")


def sampling_options(nuts_sampler: str, options: SampleOptions) -> SampleOptions:
    """Check the options of `pm.sample`, and return them with four chains by default.

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
            "sample() samples the result's own model: leave model=... out, or call pm.sample."
        )
    one_of("nuts_sampler", nuts_sampler, get_args(NutsSampler.__value__))
    if find_spec(nuts_sampler) is None:
        extra = "jax" if nuts_sampler in ON_JAX else nuts_sampler
        raise InvalidOptionError(
            f"nuts_sampler={nuts_sampler!r} needs the package {nuts_sampler}: "
            f'pip install "pymc-coresets[{extra}]".'
        )
    optional = {"tune", "chains", "cores"}
    options = {n: v for n, v in options.items() if v is not None or n not in optional}
    for name, least in {"draws": 1, "tune": 0, "chains": 1, "cores": 1}.items():
        if name in options:
            whole_number(name, options[name], least=least)
    rng = generator(seed := options.get("random_seed"))
    if isinstance(seed, np.ndarray | np.random.RandomState | np.random.SeedSequence):
        options["random_seed"] = rng  # pm.sample takes none of these
    if not flag("return_inferencedata", options.get("return_inferencedata", True)):
        raise InvalidOptionError(
            "return_inferencedata=False: draws must be in a DataTree to be checked or re-weighted. "
            "Leave it out, or call pm.sample(model=....model)."
        )
    return {"chains": 4} | options  # enough for R-hat (Vehtari et al. 2021)


_FEW = 10_000  # draws that NumPy records sooner than a function is compiled


class SharedTrace(pymc_api.NDArray):  # type: ignore[misc] # PyMC's are not typed
    """Draws of one chain; `pm.sample` makes copies for the other chains.

    PyMC compiles a function for each chain that computes the recorded variables from a point of the
    unconstrained space, which takes longer than four thousand draws of a cheap density.  Here NumPy
    computes them, if there are few draws.

    Examples
    --------
    >>> with pm.Model() as model:
    ...     sigma = pm.HalfNormal("sigma")
    ...     options = {"tune": 50, "chains": 2, "cores": 1, "nuts_sampler": "pymc"}
    ...     options |= {"random_seed": 1, "progressbar": False}
    ...     idata = pm.sample(50, trace=SharedTrace.of(model), **options)
    ...     same = pm.sample(50, **options)
    >>> bool(np.allclose(idata["posterior"]["sigma"], same["posterior"]["sigma"], rtol=1e-12))
    True
    """

    @classmethod
    def of(
        cls,
        model: pm.Model,
        names: Sequence[str] | None = None,
        point: Mapping[str, np.ndarray] | None = None,
        n_draws: int = 4_000,
        step: object = None,
    ) -> Self:
        """Compile the recorded variables, by default all; any point shows their shapes.

        Unless a step method knows the values of all of them.
        """
        variables = model.unobserved_value_vars
        with compiling():
            if names is not None:
                chosen = [v for v in model.unobserved_RVs if v.name in names]
                variables = model.replace_rvs_by_values(chosen)
            known = (
                step.recorded([v.name for v in variables]) if isinstance(step, Playback) else None
            )
            function = known or pytensor.function(
                model.value_vars,
                variables,
                mode=loop_mode(compiled=False) if n_draws <= _FEW else None,
                on_unused_input="ignore",
                trust_input=True,
            )
            return cls(model=model, vars=variables, test_point=point, fn=function)

    def __copy__(self) -> Self:
        other = object.__new__(type(self))
        for name, value in vars(self).items():
            setattr(other, name, value)
        other.samples = {}
        return other


class PrecisionPotential(pymc_api.QuadPotential):  # type: ignore[misc] # PyMC's are not typed
    """PyMC's kinetic energy with a precision matrix instead of variances.

    Parameters
    ----------
    factor : CholeskyFactor
        Of the precision, (n_dims, n_dims).
    rng : numpy.random.Generator
    dtype : str, default "float64"
        Of the points of the density.

    Examples
    --------
    >>> factor, rng = DenseFactor.of(np.diag([4.0, 1.0])), np.random.default_rng(1)
    >>> potential = PrecisionPotential(factor, rng)
    >>> potential.velocity(np.ones(2)), potential.energy(np.ones(2))
    (array([0.25, 1.  ]), 0.625)
    """

    def __init__(
        self, factor: CholeskyFactor, rng: np.random.Generator, dtype: str = "float64"
    ) -> None:
        super().__init__(rng)
        self._factor, self.dtype = factor, np.dtype(dtype)
        # For thousands of sequential vectors: a third of the time of two triangular solves.
        is_dense = isinstance(factor, DenseFactor)
        self._solve = factor.solve(np.eye(factor.n_dims)).__matmul__ if is_dense else factor.solve

    def velocity(self, x: np.ndarray, out: np.ndarray | None = None) -> np.ndarray:
        """Return the velocity for a momentum, written into `out` if given."""
        found: np.ndarray = self._solve(x).astype(self.dtype, copy=False)
        if out is not None:
            out[:] = found
        return found

    def energy(self, x: np.ndarray, velocity: np.ndarray | None = None) -> float:
        """Return the kinetic energy of a momentum."""
        return float(x @ (self.velocity(x) if velocity is None else velocity)) / 2

    def velocity_energy(self, x: np.ndarray, v_out: np.ndarray) -> float:
        """Write the velocity for a momentum into `v_out`, and return the kinetic energy."""
        return self.energy(x, self.velocity(x, v_out))

    def random(self) -> np.ndarray:
        """Draw a momentum."""
        momentum = self._factor.root_times(self.rng.normal(size=self._factor.n_dims))
        return momentum.astype(self.dtype, copy=False)


class _AcceleratedState(State):  # type: ignore[misc]
    """PyMC's state, with the change of velocity per unit of time due to its gradient."""

    acceleration: np.ndarray


def _accelerated(state: State, acceleration: np.ndarray) -> _AcceleratedState:
    found = _AcceleratedState(*state)
    found.acceleration = acceleration
    return found


class PrecisionLeapfrog(pymc_api.CpuLeapfrogIntegrator):  # type: ignore[misc]
    """PyMC's leapfrog steps with one solve of the metric's equations each, instead of two.

    Velocities are linear in momenta, and the contribution of the gradient at a point is the same at
    the end of one step and at the beginning of the next.

    Parameters
    ----------
    potential : PrecisionPotential
    density : ValueGradFunction
        That of PyMC.
    """

    def compute_state(self, q: RaveledVars, p: np.ndarray) -> _AcceleratedState:
        """Return the state at a position and a momentum."""
        state = super().compute_state(q, p)
        return _accelerated(state, self._potential.velocity(state.q_grad))

    def _step(self, epsilon: float, state: _AcceleratedState) -> _AcceleratedState:
        half = epsilon / 2
        v = state.v + half * state.acceleration
        there = state.q.data + epsilon * v
        q = state.q._replace(data=there.astype(state.q.data.dtype, copy=False))
        logp, gradient = self._logp_dlogp_func(q.data, q.point_map_info)
        acceleration = self._potential.velocity(gradient)
        p, v = state.p + half * (state.q_grad + gradient), v + half * acceleration
        energy = self._potential.energy(p, v) - logp
        moved = state.index_in_trajectory + int(np.sign(epsilon))
        return _accelerated(State(q, p, v, gradient, energy, logp, moved), acceleration)


class _Beginning(NamedTuple):
    """Where a chain begins, with PyMC's kinetic energy by a generator, and its first step size."""

    x: np.ndarray
    potential: Callable[[np.random.Generator], Any]
    integrator: type[Any]
    step_size: float

    @classmethod
    def adapted(
        cls, x: np.ndarray, mean: np.ndarray, variance: np.ndarray, step_size: float
    ) -> Self:
        """Begin with a diagonal metric that follows the draws, from their mean and variances."""

        def potential(rng: np.random.Generator) -> Any:  # noqa: ANN401 - PyMC's
            dtype = OnePoint.dtype
            return pymc_api.QuadPotentialDiagAdapt(len(x), mean, variance, 10, dtype=dtype, rng=rng)

        return cls(x, potential, pymc_api.CpuLeapfrogIntegrator, step_size)


def _first_step_size(x: np.ndarray) -> float:
    return float(0.25 / len(x) ** 0.25)


@dataclass(frozen=True, kw_only=True, eq=False)
class Run:
    """Draws of one run, and the starting information for the next.

    Parameters
    ----------
    positions : ndarray of shape (n_draws, n_dims)
        Draws on the unconstrained scale, chain by chain.
    step_size : float
        Mean of the chains' adapted step sizes.
    n_divergences : int
        Among these draws.
    """

    positions: np.ndarray
    step_size: float
    n_divergences: int

    def continued(self, rng: np.random.Generator) -> list[_Beginning]:
        """Begin chains at some of its draws, with their variances and its step size."""
        mean, variance = self.positions.mean(axis=0), self.positions.var(axis=0)
        some = rng.choice(self.positions, N_CHAINS, replace=False)
        return [_Beginning.adapted(x, mean, variance, self.step_size) for x in some]


class WarmNuts:
    """PyMC's NUTS on the densities of surrogates of one model, which are compiled once.

    Later runs start at the end of the last one, with its metric and step size, and tune for half as
    long.  Two chains run one after the other.

    Parameters
    ----------
    tune : int
        Tuning steps of each chain.

    Attributes
    ----------
    last : Run, or None
        Start of the next run.
    counts : dict of str to int
        Divergences among the draws, and runs that failed.
    """

    def __init__(self, *, tune: int) -> None:
        self.tune = tune
        self._density: OnePoint | None = None
        self.last: Run | None = None
        self.counts = {"n_divergences": 0, "n_failed_starts": 0}

    def draw(
        self,
        posterior: Surrogate,
        n_draws: int,
        *,
        starts: Sequence[np.ndarray] = (),
        rng: np.random.Generator,
    ) -> np.ndarray:
        """Draw on the unconstrained scale, (n_draws, n_dims).

        If the density is 0 at the end of the last run, it starts afresh.

        Parameters
        ----------
        posterior : Surrogate
            Of the same model as those before, with a quadratic of the same form.
        n_draws : int
        starts : sequence of ndarray of shape (n_dims,), optional
            Starting points of chains that start afresh, by default the model's initial point.
        rng : numpy.random.Generator

        Raises
        ------
        SamplingError
            If NUTS fails.
        """
        density = self._of(posterior)
        return self._kept(next(self._runs(density, n_draws, starts, rng)))

    def draw_in_metric(
        self,
        posterior: Surrogate,
        n_draws: int,
        *,
        starts: Sequence[np.ndarray],
        metric: CholeskyFactor,
        rng: np.random.Generator,
    ) -> np.ndarray:
        """Draw with the root of approximately the posterior's precision as metric; see `draw`.

        Every run starts afresh, and only the step size is tuned.
        """
        density = self._of(posterior)
        potential = partial(PrecisionPotential, metric)
        beginnings = [
            _Beginning(x, potential, PrecisionLeapfrog, _first_step_size(x)) for x in starts
        ]
        return self._kept(self._run(density, n_draws, beginnings, self.tune // 4, rng))

    def _of(self, posterior: Surrogate) -> OnePoint:
        refuse_discrete(posterior.space.model, "and NUTS cannot sample them")
        self._density = (self._density or OnePoint(posterior)).of(posterior)
        return self._density

    def _kept(self, run: Run) -> np.ndarray:
        self.last = run
        self.counts["n_divergences"] += run.n_divergences
        return run.positions

    def _runs(
        self,
        density: OnePoint,
        n_draws: int,
        starts: Sequence[np.ndarray],
        rng: np.random.Generator,
    ) -> Iterator[Run]:
        """Yield a run from the end of the last one, if there is one and it succeeds; or afresh."""
        if self.last is not None:
            beginnings = self.last.continued(rng)
            try:
                yield self._run(density, n_draws, beginnings, self.tune // 2, rng)
            except SamplingError as error:
                _log.info("NUTS starts afresh: %s", error)
        known = list(starts)
        beginnings = [
            _Beginning.adapted(x, x, np.ones(len(x)), _first_step_size(x))
            for x in known or [density.space.start]
        ]
        try:
            yield self._run(density, n_draws, beginnings, self.tune, rng)
        except SamplingError as error:
            if not known and isinstance(error.__cause__, PyMCSamplingError):
                raise at_initial_point(density.posterior.model) from error.__cause__
            raise

    def _run(
        self,
        density: OnePoint,
        n_draws: int,
        beginnings: Sequence[_Beginning],
        tune: int,
        rng: np.random.Generator,
    ) -> Run:
        per_chain = -(-n_draws // N_CHAINS)
        try:
            # A trajectory that diverges may overflow, which is counted as a divergence.
            with np.errstate(over="ignore", invalid="ignore"):
                n_steps = N_CHAINS * (tune + per_chain)
                with paced("sampling a coreset's posterior by NUTS", n_steps, "steps") as count:
                    chain = partial(_chain, density, tune=tune, count=count)
                    chains = [
                        chain(begin, per_chain, rng=stream)
                        for begin, stream in zip(
                            cycle(beginnings), rng.spawn(N_CHAINS), strict=False
                        )
                    ]  # mode after mode
        except (ValueError, RuntimeError, FloatingPointError, PyMCSamplingError) as error:
            self.counts["n_failed_starts"] += 1
            raise SamplingError(f"{_FAILED}: {text_of(error)}.") from error
        return Run(
            positions=np.concatenate([own.positions for own in chains])[:n_draws],
            step_size=float(np.mean([own.step_size for own in chains])),
            n_divergences=sum(own.n_divergences for own in chains),
        )


def _chain(
    density: OnePoint,
    begin: _Beginning,
    n_draws: int,
    *,
    tune: int,
    rng: np.random.Generator,
    count: Callable[[int], None],
) -> Run:
    space, x = density.space, begin.x
    step: Any = pm.NUTS(
        model=space.model,
        logp_dlogp_func=density,
        initial_point=space.initial_point,
        potential=begin.potential(rng.spawn(1)[0]),
    )
    step.integrator = begin.integrator(step.potential, density)
    step.step_adapt = pymc_api.DualAverageAdaptation(begin.step_size, 0.8, 0.05, 0.75, 10)
    step.reset()
    step.setup_chain(rng, tune, n_draws)
    state: Any = space.raveled(x)._replace(data=x)  # of float64, whatever the model's is
    positions, n_divergences = [], 0
    for i in range(tune + n_draws):
        if i == tune:
            step.stop_tuning()
        state, [stats] = step.astep(state)
        count(1)
        if i >= tune:
            positions.append(state.data)
            n_divergences += bool(stats["diverging"])
    return Run(
        positions=np.stack(positions),
        step_size=float(step.step_adapt.current(tune=False)),
        n_divergences=n_divergences,
    )


def refuse_discrete(model: pm.Model, why: str) -> None:
    """Raise if variables of a model are discrete, for a reason in words.

    Raises
    ------
    SamplingError

    Examples
    --------
    >>> with pm.Model() as model:
    ...     k = pm.Poisson("k", 3.0)
    >>> refuse_discrete(model, "and NUTS cannot sample them")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    pymc_coresets.exceptions.SamplingError: ['k'] are discrete, and NUTS cannot sample them: ...
    """
    discrete = [v.name for v in model.discrete_value_vars]
    if discrete:
        raise SamplingError(
            f"{discrete!r} are discrete, {why}: sum them out, or use method='pursuit' with "
            "weighting='prior', or with your own draws."
        )


def at_initial_point(model: pm.Model) -> SamplingError:
    """Return the error for a failure of NUTS at the initial point of an internal model.

    Parameters
    ----------
    model : pm.Model
        With the user's names, except for the rows.

    Examples
    --------
    >>> with pm.Model() as model:
    ...     mu = pm.Normal("mu")
    ...     limit = pm.Potential("limit", pm.math.log(mu - 1.0))
    >>> at_initial_point(model).message.partition(". ")[0]
    "NUTS failed on the posterior of a coreset: at the model's initial point, 'limit' is nan"
    """
    values = {name: value for name, value in model.point_logps().items() if not np.isfinite(value)}
    wrong = ", ".join(f"{name!r} is {value}" for name, value in values.items())
    return SamplingError(
        f"{_FAILED}: at the model's initial point, {wrong or 'the gradient is not finite'}. Give "
        "the variables an initval=... with a finite log-density. See debug() of your own model."
    )
