"""The gradient of the log-likelihood of weighted rows, compiled once for any rows."""

from typing import cast

import pytensor.tensor as pt
from pytensor.graph import Variable, clone_replace, graph_inputs

from pymc_coresets.exceptions import UnsupportedModelError
from pymc_coresets.potentials.fused_loops import Kernel
from pymc_coresets.potentials.remainder import of_vector
from pymc_coresets.reading.observations import Observations


def gradient_kernel(observations: Observations) -> Kernel:
    """Return the log-likelihood of weighted rows and its gradient at a vector, without data."""
    x, weights = (pt.vector(name, dtype="float64") for name in ("x", "weights"))
    used = set(graph_inputs([observations.loglik]))
    arrays = {i: row for i, row in enumerate(observations.inputs) if row.placeholder in used}
    [loglik] = of_vector([observations.loglik], observations, x)
    n_rows: dict[Variable, Variable] = {observations.n_rows: weights.shape[0]}
    [logp] = clone_replace([(weights * loglik).sum()], n_rows)
    try:
        gradient = cast(Variable, pt.grad(logp, x))
    except NotImplementedError as error:
        raise UnsupportedModelError(
            f"The log-likelihood has no gradient, which leads to the posterior's mode: {error}. "
            "Give this operation a gradient, or write the likelihood by others."
        ) from error
    inputs = [weights, *(row.placeholder for row in arrays.values())]
    return Kernel([x], inputs, [logp, gradient], {i: row.axis for i, row in arrays.items()})
