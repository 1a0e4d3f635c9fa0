"""NUTS by PyMC and nutpie: for one density whose data change, and as `pm.sample` offers it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib.util import find_spec
from typing import Any, Literal, Self, get_args

import numpy as np
import pymc as pm
import xarray as xr

from pymc_coresets.compat import pymc_api
from pymc_coresets.compat.nutpie_api import sample_density
from pymc_coresets.compat.pymc_api import NDArray, ParallelSamplingError, PyMCSamplingError
from pymc_coresets.compat.pytensor_api import compiling, untraced
from pymc_coresets.exceptions import InvalidOptionError, SamplingError
from pymc_coresets.options import flag, generator, one_of, whole_number
from pymc_coresets.reading.unconstrained import Unconstrained
from pymc_coresets.sampling.steps.metric import Factor, PrecisionLeapfrog, PrecisionPotential

#: NUTS as `pm.sample` offers it.
type NutsSampler = Literal["pymc", "nutpie", "numpyro", "blackjax"]

N_CHAINS = 2

#: Samplers that need JAX.
ON_JAX = {"numpyro", "blackjax"}

_LEAST = {"draws": 1, "tune": 0, "chains": 1, "cores": 1}  # of what `pm.sample` is passed
_OPTIONAL = {"tune", "chains", "cores"}
_CHAINS = 4  # enough for R-hat (Vehtari et al. 2021)
_TARGET_ACCEPT = 0.8
_METRIC_WEIGHT = 10  # draws that the initial variances of the metric count for


@dataclass(frozen=True, kw_only=True, eq=False)
class Run:
    """Draws of one run, and what the next may start from.

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

    def starts(self, rng: np.random.Generator) -> np.ndarray:
        """Positions to start the chains from, of shape (n_chains, n_dims)."""
        chosen: np.ndarray = rng.choice(self.positions, N_CHAINS, replace=False)
        return chosen


def nuts_failure(error: Exception, model: pm.Model | None) -> SamplingError:
    """Return what to raise where NUTS fails on an internal model.

    Parameters
    ----------
    error : Exception
        Of PyMC, or of another sampler.
    model : pm.Model or None
        With the user's names for all but the rows, if it was started at its initial point.

    Examples
    --------
    >>> with pm.Model() as model:
    ...     mu = pm.Normal("mu")
    ...     limit = pm.Potential("limit", pm.math.log(mu - 1.0))
    >>> nuts_failure(PyMCSamplingError("Bad initial energy"), model).message.partition(". ")[0]
    "NUTS failed on the posterior of a coreset: at the model's initial point, 'limit' is nan"
    """
    failed = "NUTS failed on the posterior of a coreset"
    if model is None or not isinstance(error, PyMCSamplingError):
        return SamplingError(f"{failed}: {_text_of(error)}.")
    values = {name: value for name, value in model.point_logps().items() if not np.isfinite(value)}
    wrong = ", ".join(f"{name!r} is {value}" for name, value in values.items())
    return SamplingError(
        f"{failed}: at the model's initial point, {wrong or 'the gradient is not finite'}. Give "
        "the variables an initval=... where their log-density is finite. The debug() of your own "
        "model says more."
    )


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
            f"pm.sample failed: {_text_of(error)}. Give initvals=... where the log-density is "
            "finite. What it sampled is the attribute .model, and not your own model: "
            ".model.debug() says more."
        ) from error
    return idata


def _text_of(error: Exception) -> str:
    """Return what another package says, without its advice, which is about an unnamed model."""
    text = str(error)
    for more in (": SamplerWarning(", "You can call `model.debug()`", "Stack backtrace:"):
        text = text.partition(more)[0]
    return " ".join(text.split()).rstrip(".")


class NutpieNuts:
    """nutpie, kept from run to run: starts and standard deviations come from the last one.

    Parameters
    ----------
    space : Unconstrained
        The unconstrained space of the model.

    Attributes
    ----------
    metric : Factor, or None
        Of a precision close to that of the posterior.
    """

    def __init__(self, space: Unconstrained) -> None:
        self._space = space
        self.metric: Factor | None = None

    def run(
        self,
        n_draws: int,
        *,
        tune: int,
        last: Run | None,
        rng: np.random.Generator,
        starts: np.ndarray | None = None,
    ) -> Run:
        """Draw from the model as it is.

        The first run begins at `starts` (n_chains, n_dims), or at the model's initial point.
        """
        scale = np.ones(self._space.n_dims)
        if self.metric is not None:
            scale = np.sqrt(self.metric.solve(np.eye(len(scale))).diagonal())
        elif last is not None:
            scale = last.positions.std(axis=0)
        if last is not None:
            starts = last.starts(rng)
        elif starts is None or self.metric is not None:
            # By a gradient of zero, at a mode, nutpie does not find how far to go.
            known = self._space.start if starts is None else starts
            starts = known + scale * rng.uniform(-1.0, 1.0, (N_CHAINS, len(scale)))
        settings = {"draws": -(-n_draws // N_CHAINS), "tune": tune}
        chains = [self._chain(scale, x, seed=int(rng.integers(2**31)), **settings) for x in starts]
        positions = np.concatenate([own["unconstrained_draw"].to_numpy() for own in chains])
        return Run(
            positions=scale * positions[:n_draws],
            step_size=float(np.mean([own["step_size_bar"][-1] for own in chains])),
            n_divergences=sum(int(own["diverging"].sum()) for own in chains),
        )

    def _chain(self, scale: np.ndarray, start: np.ndarray, **settings: int) -> xr.Dataset:
        """Run one, in units of the standard deviations, which nutpie adapts further."""

        def density(z: np.ndarray) -> tuple[float, np.ndarray]:
            with np.errstate(all="ignore"):  # where a trajectory diverges, which is counted
                logp, gradient = self._space.logp_and_gradient(scale * z)
                return logp, scale * gradient

        return sample_density(density, start / scale, **settings)


class PyMCNuts:
    """PyMC's own step method, kept from run to run; metric and step size start from the last one.

    The chains run one after the other.

    Parameters
    ----------
    space : Unconstrained
        The unconstrained space of the model.

    Attributes
    ----------
    metric : Factor, or None
        Of a precision close to that of the posterior: only the step size is left to tune then.
    """

    def __init__(self, space: Unconstrained) -> None:
        self._space = space
        self.metric: Factor | None = None

    def run(
        self,
        n_draws: int,
        *,
        tune: int,
        last: Run | None,
        rng: np.random.Generator,
        starts: np.ndarray | None = None,
    ) -> Run:
        """Draw from the model as it is now.

        The first run begins at `starts` (n_chains, n_dims), or at the model's initial point.
        """
        first = np.tile(self._space.start, (N_CHAINS, 1)) if starts is None else starts
        starts = first if last is None else last.starts(rng)
        per_chain = -(-n_draws // N_CHAINS)
        # A trajectory that diverges may overflow, which is counted as a divergence.
        with np.errstate(over="ignore", invalid="ignore"):
            chains = [
                self._chain(x, per_chain, tune, last, stream)
                for x, stream in zip(starts, rng.spawn(N_CHAINS), strict=True)
            ]
        positions = np.concatenate([chain for chain, _, _ in chains])[:n_draws]
        return Run(
            positions=positions,
            step_size=float(np.mean([step for _, step, _ in chains])),
            n_divergences=sum(diverging for _, _, diverging in chains),
        )

    def _chain(
        self, x: np.ndarray, n_draws: int, tune: int, last: Run | None, rng: np.random.Generator
    ) -> tuple[np.ndarray, float, int]:
        step, n_dims = self._step, len(x)
        step.potential = self._potential(x, last, rng.spawn(1)[0])
        precise = isinstance(step.potential, PrecisionPotential)
        integrator = PrecisionLeapfrog if precise else pymc_api.CpuLeapfrogIntegrator
        step.integrator = integrator(step.potential, self._space.density)
        size = 0.25 / n_dims**0.25 if last is None else last.step_size
        step.step_adapt = pymc_api.DualAverageAdaptation(size, _TARGET_ACCEPT, 0.05, 0.75, 10)
        step.reset()
        step.setup_chain(rng, tune, n_draws)
        state: Any = self._space.raveled(x)
        positions, n_divergences = [], 0
        for i in range(tune + n_draws):
            if i == tune:
                step.stop_tuning()
            state, [stats] = step.astep(state)
            if i >= tune:
                positions.append(state.data)
                n_divergences += bool(stats["diverging"])
        return np.stack(positions), float(step.step_adapt.current(tune=False)), n_divergences

    def _potential(self, x: np.ndarray, last: Run | None, rng: np.random.Generator) -> Any:  # noqa: ANN401
        if self.metric is not None:
            return PrecisionPotential(self.metric, rng)
        known = None if last is None else last.positions
        mean, variance = (
            (x, np.ones(len(x))) if known is None else (known.mean(axis=0), known.var(axis=0))
        )
        return pymc_api.QuadPotentialDiagAdapt(len(x), mean, variance, _METRIC_WEIGHT, rng=rng)

    @cached_property
    def _step(self) -> Any:  # noqa: ANN401
        return pm.NUTS(model=self._space.model, logp_dlogp_func=self._space.density)


def sampling_options(nuts_sampler: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of `pm.sample`, four chains among them, after a look at the common ones.

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
