"""Functions of a model's free variables: random values of others, or their means."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
from pytensor.graph import Apply, FunctionGraph, Variable, ancestors, node_rewriter

from pymc_coresets.compat import pymc_api
from pymc_coresets.compat import pytensor_api as ops
from pymc_coresets.compat.pytensor_api import (
    NoneTypeT,
    RandomType,
    SharedVariable,
    dfs_rewriter,
)
from pymc_coresets.exceptions import InvalidOptionError
from pymc_coresets.potentials.fused_loops import loop_mode
from pymc_coresets.reading.folding import PLAIN_MODE

#: Values of some variables, by name.
type Values = dict[str, np.ndarray]


@node_rewriter([ops.BernoulliRV])
def _compare_uniform_numbers(_: FunctionGraph, node: Apply) -> list[Variable]:
    """Draw Bernoulli variables from uniform ones: SciPy takes ten times as long."""
    rng, size = node.inputs[:2]
    p = pt.as_tensor(node.inputs[2])
    valid = pt.all((p >= 0) & (p <= 1))
    checked = ops.CheckAndRaise(ValueError, "A Bernoulli probability is not between 0 and 1.")(
        p, valid
    )
    shape = pt.shape(p) if isinstance(size.type, NoneTypeT) else size
    next_rng, uniform = pt.random.uniform(size=shape, rng=rng, return_next_rng=True)
    return [next_rng, pt.cast(pt.lt(uniform, checked), node.op.dtype)]


_WITH_NUMPY = PLAIN_MODE.register((dfs_rewriter(_compare_uniform_numbers), 0.5))


@dataclass(frozen=True, eq=False)
class Forward:
    """Some variables of a model as a function of its free variables.

    It computes them for the rows that the model's data containers hold when it is called.

    Parameters
    ----------
    names : tuple of str
        Of the variables that it returns.
    inputs : tuple of str
        Of the free variables.
    function : callable
        From PyTensor.
    rngs : tuple of SharedVariable
        Random number generators of the function.

    Examples
    --------
    >>> with pm.Model() as model:
    ...     y = pm.Normal("y", pm.Normal("mu"), 1e-9, observed=np.zeros(2))
    >>> forward = Forward.of(model, forward_graphs(model, ["y"], means=False))
    >>> forward({"mu": np.array(3.0)}, 1)["y"].round(3)
    array([3., 3.])
    """

    names: tuple[str, ...]
    inputs: tuple[str, ...]
    function: Any
    rngs: tuple[SharedVariable, ...]

    @classmethod
    def of(
        cls,
        model: pm.Model,
        graphs: Mapping[str, Variable],
        drawn: Collection[str] = (),
        *,
        compiled: bool = False,
    ) -> "Forward":
        """Make the function of graphs from `forward_graphs`; free variables may be drawn, too.

        NumPy evaluates it, which is nearly as fast for random values as a compiled function; means
        of many rows take a third of the time in compiled loops.  Both let other threads work at the
        same time.
        """
        free = [rv for rv in model.free_RVs if rv.name not in drawn]
        mode = loop_mode() if compiled else _WITH_NUMPY
        function: Any = pymc_api.compile_random(free, list(graphs.values()), mode=mode)
        rngs = tuple(v for v in function.get_shared() if isinstance(v.type, RandomType))
        return cls(tuple(graphs), tuple(rv.name for rv in free), function, rngs)

    def separate(self) -> "Forward":
        """Return the same function for another thread: with memory and random numbers of its own.

        Examples
        --------
        >>> with pm.Model() as model:
        ...     y = pm.Normal("y", pm.Normal("mu"), 1.0, observed=np.zeros(2))
        >>> one = Forward.of(model, forward_graphs(model, ["y"], means=False))
        >>> at = {"mu": np.array(3.0)}
        >>> bool((one(at, 7)["y"] == one.separate()(at, 7)["y"]).all())
        True
        """
        others = {v: pytensor.shared(v.get_value(), name=v.name) for v in self.rngs}
        function = self.function.copy(swap=others)
        return replace(self, function=function, rngs=tuple(others.values()))

    def __call__(self, point: Mapping[str, np.ndarray], *key: int) -> Values:
        """Return the variables at one draw of all free variables.

        Their random numbers are those that belong to a key of whole numbers.
        """
        pymc_api.reseed_rngs(self.rngs, key)
        values: Sequence[np.ndarray] = self.function(*(point[name] for name in self.inputs))
        return dict(zip(self.names, values, strict=True))


def predicted_names(model: pm.Model) -> list[str]:
    """Return what PyMC predicts by default: what was observed, and what is computed from it.

    Examples
    --------
    >>> with pm.Model() as model:
    ...     y = pm.Normal("y", pm.Normal("mu"), 1.0, observed=np.zeros(2))
    >>> predicted_names(model)
    ['y']
    """
    found = [*model.observed_RVs, *pymc_api.observed_dependent_deterministics(model)]
    return [variable.name for variable in found]


def forward_graphs(model: pm.Model, names: Sequence[str], *, means: bool) -> dict[str, Variable]:
    """Return the graphs of some variables, or of their means, given the free variables.

    Parameters
    ----------
    model : pm.Model
    names : sequence of str
        Observed variables, deterministics, or free variables.
    means : bool
        Replace observed variables by their means, where PyMC knows these.

    Raises
    ------
    InvalidOptionError
        If there are no names, a name is none of the model's random variables and deterministics,
        or what it names has no mean.

    Examples
    --------
    >>> with pm.Model() as model:
    ...     y = pm.Bernoulli("y", p=pm.Beta("p", 1, 1), observed=np.zeros(2))
    >>> Forward.of(model, forward_graphs(model, ["y"], means=True))({"p": np.array(0.25)}, 1)
    {'y': array([0.25, 0.25])}
    """
    if not names:
        raise InvalidOptionError(
            "The model has no observed variables to predict: name deterministics with var_names."
        )
    known = {v.name for v in [*model.basic_RVs, *model.deterministics]}
    for name in names:
        if name not in known:
            raise InvalidOptionError(
                f"var_names: the model has no random variable or deterministic {name!r}; it has "
                f"{sorted(known)!r}."
            )
    observed = {rv.name for rv in model.observed_RVs}
    return {
        name: pt.as_tensor(
            _mean(model[name]) if means and name in observed else model[name],
            allow_xtensor_conversion=True,
        )
        for name in names
    }


def is_random(model: pm.Model, graph: Variable) -> bool:
    """Whether a graph has other values each time, at the same values of the free variables.

    Examples
    --------
    >>> with pm.Model() as model:
    ...     y = pm.Normal("y", pm.Normal("mu"), 1.0, observed=np.zeros(2))
    >>> [is_random(model, model[name]) for name in ("mu", "y")]
    [False, True]
    """
    blockers = set(model.free_RVs)
    found = ancestors([graph], blockers=blockers)
    return graph not in blockers and any(isinstance(v.type, RandomType) for v in found)


def _mean(variable: Variable) -> Variable:
    try:
        mean: Variable = pymc_api.mean_of(variable)
    except NotImplementedError:
        return variable  # the draws are averaged, which the result says
    except pymc_api.UndefinedMomentException as error:
        raise InvalidOptionError(
            f"{variable.name!r} has no mean ({error}): use kind='draws', or give the names of "
            "deterministics as var_names."
        ) from error
    return mean
