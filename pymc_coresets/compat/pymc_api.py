"""All that is used of PyMC beyond what ``import pymc`` documents, in one place.

PyMC may move or change these names in any release; `tests/unit/test_compat.py` says what broke.
"""

from collections.abc import Iterator, Mapping, Sequence
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


def coords_of(fgraph: FunctionGraph) -> tuple[dict[str, Any], dict[str, Any]]:
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
    fgraph: FunctionGraph, coords: Mapping[str, Any], lengths: Mapping[str, Any]
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


@contextmanager
def starting_at(model: pm.Model, point: Mapping[str, np.ndarray]) -> Iterator[None]:
    """Have `pm.sample` start a model's chains at a point, for which it would compile a function.

    Only where the initial values of all chains are the model's own.

    Examples
    --------
    >>> with pm.Model() as model:
    ...     mu = pm.Normal("mu")
    >>> with starting_at(model, {"mu": np.array(2.0)}):
    ...     float(model.initial_point()["mu"])
    2.0
    >>> float(model.initial_point()["mu"])
    0.0
    """
    own = vars(model)
    own["_make_initial_point"] = lambda **_: lambda _seed: dict(point)
    try:
        yield
    finally:
        own.pop("_make_initial_point", None)  # another thread's may have been the last


def compile_random(
    inputs: Sequence[Variable[Any, Any]],
    outputs: Sequence[Variable[Any, Any]],
    *,
    mode: Mode | None = None,
) -> Any:  # noqa: ANN401
    """Compile a function whose random numbers go on from call to call, and are not seeded yet.

    Examples
    --------
    >>> import pymc as pm
    >>> draw = compile_random([], [pm.Normal.dist()])
    >>> bool(draw()[0] == draw()[0])
    False
    """
    return compile_function(
        list(inputs),
        list(outputs),
        mode=mode,
        random_seed=False,
        on_unused_input="ignore",
        allow_input_downcast=True,
    )
