"""What `pm.sample` records the draws of its chains with, compiled once for all of them."""

from collections.abc import Sequence
from typing import Self

import pymc as pm

from pymc_coresets.compat.pymc_api import NDArray
from pymc_coresets.compat.pytensor_api import compiling


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
