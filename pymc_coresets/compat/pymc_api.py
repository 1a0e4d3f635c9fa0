"""All that is used of PyMC beyond what ``import pymc`` documents, in one place.

PyMC may move or change these names in any release; `tests/unit/test_compat.py` says what broke.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import pymc as pm
from pymc import compile as compile_function
from pymc import modelcontext
from pymc.backends.ndarray import NDArray
from pymc.blocking import DictToArrayBijection, RaveledVars
from pymc.distributions.distribution import PartialObservedRV
from pymc.distributions.moments.means import mean as mean_of
from pymc.distributions.simulator import SimulatorRV
from pymc.distributions.transforms import ZeroSumTransform
from pymc.exceptions import SamplingError as PyMCSamplingError
from pymc.exceptions import UndefinedMomentException
from pymc.initial_point import make_initial_point_expression
from pymc.logprob.basic import transformed_conditional_logp
from pymc.logprob.transforms import LogTransform, Transform
from pymc.logprob.utils import CheckParameterValue, ParameterValueError, replace_rvs_by_values
from pymc.model.fgraph import (
    ModelDeterministic,
    ModelNamed,
    fgraph_from_model,
    model_from_fgraph,
    model_named,
    model_potential,
)
from pymc.pytensorf import gradient, reseed_rngs, resolve_shapes
from pymc.sampling.forward import observed_dependent_deterministics
from pymc.sampling.parallel import ParallelSamplingError
from pymc.step_methods import BlockedStep
from pymc.step_methods.compound import StepMethodState
from pymc.step_methods.hmc.integration import CpuLeapfrogIntegrator, State
from pymc.step_methods.hmc.quadpotential import QuadPotential, QuadPotentialDiagAdapt
from pymc.step_methods.step_sizes import DualAverageAdaptation
from pytensor import Mode
from pytensor.graph import FunctionGraph, Variable

#: Labels of each dim; None if it has none.
type Coords = dict[str, tuple[object, ...] | None]


def coords_of(fgraph: FunctionGraph) -> tuple[Coords, dict[str, Variable]]:
    """Return the coords and the lengths of dims that PyMC keeps with a model's graph.

    Examples
    --------
    >>> import pymc as pm
    >>> with pm.Model(coords={"city": ["Bern", "Oslo"]}) as model:
    ...     effect = pm.Normal("effect", dims="city")
    >>> coords_of(fgraph_from_model(model)[0])[0]
    {'city': ('Bern', 'Oslo')}
    """
    kept = vars(fgraph)
    return dict(kept["_coords"]), dict(kept["_dim_lengths"])


def set_coords(
    fgraph: FunctionGraph, coords: Mapping[str, object], lengths: Mapping[str, object]
) -> None:
    """Put coords and lengths of dims where `model_from_fgraph` looks for them.

    Examples
    --------
    >>> graph = FunctionGraph(outputs=[], clone=False)
    >>> set_coords(graph, {"city": ("Bern",)}, {})
    >>> coords_of(graph)[0]
    {'city': ('Bern',)}
    """
    vars(fgraph).update(_coords=dict(coords), _dim_lengths=dict(lengths))


class KnownStart(dict[str, np.ndarray]):
    """Initial values for `pm.sample`, with the point of the unconstrained space that they are."""

    def __init__(self, values: Mapping[str, np.ndarray], point: Mapping[str, np.ndarray]) -> None:
        super().__init__(values)
        self.point = point


@contextmanager
def starting_at(model: pm.Model, point: Mapping[str, np.ndarray] | None = None) -> Iterator[None]:
    """Have `pm.sample` start chains where it is told, without a function for each of them.

    Parameters
    ----------
    model : pm.Model
    point : mapping of str to ndarray, optional
        Where chains start without initial values of their own.

    Examples
    --------
    >>> with pm.Model() as model:
    ...     mu = pm.HalfNormal("mu")
    >>> with starting_at(model, {"mu_log__": np.array(2.0)}):
    ...     float(model.initial_point()["mu_log__"])
    2.0
    >>> float(model.initial_point()["mu_log__"])
    0.0
    """
    own = vars(model)
    make: Any = getattr(model, "_make_initial_point", None)  # since PyMC 6.4

    def made(overrides: object = None, jitter_rvs: object = None, **others: object) -> Any:  # noqa: ANN401
        known = point if overrides is None else getattr(overrides, "point", None)
        if known is None or jitter_rvs:
            return make(overrides=overrides, jitter_rvs=jitter_rvs, **others)
        return lambda _seed: dict(known)

    if hasattr(model, "_make_initial_point") and "_make_initial_point" not in own:
        own["_make_initial_point"] = made
    try:
        yield
    finally:
        if own.get("_make_initial_point") is made:
            del own["_make_initial_point"]


def compile_random(
    inputs: Sequence[Variable],
    outputs: Sequence[Variable],
    *,
    mode: Mode | None = None,
) -> Callable[..., list[np.ndarray]]:
    """Compile a function whose random numbers go on from call to call, and are not seeded yet.

    Examples
    --------
    >>> import pymc as pm
    >>> draw = compile_random([], [pm.Normal.dist()])
    >>> bool(draw()[0] == draw()[0])
    False
    """
    function: Callable[..., list[np.ndarray]] = compile_function(
        list(inputs),
        list(outputs),
        mode=mode,
        random_seed=False,
        on_unused_input="ignore",
        allow_input_downcast=True,
    )
    return function
