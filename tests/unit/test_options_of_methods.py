"""Options of methods out of their range are refused by their name and value."""

import numpy as np
import pytest

from pymc_coresets import (
    GIGA,
    IHT,
    ControlVariates,
    FrankWolfe,
    InvalidOptionError,
    Pursuit,
    QuasiNewton,
    RiemannianPursuit,
    Sensitivity,
    SparseVI,
    Subsample,
)
from tests.refusals import refused

OUT_OF_RANGE = [
    *((method, "tolerance", value) for method in (FrankWolfe, GIGA, IHT, Pursuit)
      for value in (0, -1.0, np.nan, np.inf)),
    (IHT, "max_iterations", 0),
    (ControlVariates, "tolerance", 0.0),
    (ControlVariates, "max_rounds", 0),
    (ControlVariates, "correctable", 0.0),
    (QuasiNewton, "draws", 1),
    (QuasiNewton, "max_iterations", 0),
    (QuasiNewton, "regularisation", 0.0),
    (RiemannianPursuit, "tolerance", 0.0),
    (RiemannianPursuit, "max_rounds", 0),
    (RiemannianPursuit, "start_size", 0),
    (RiemannianPursuit, "draws", 10),
    (Sensitivity, "n_clusters", 0),
    (Sensitivity, "radius", 0.0),
    (Sensitivity, "radius", np.inf),
    (Sensitivity, "center", [[1.0]]),
    (Sensitivity, "center", [np.nan]),
    (Sensitivity, "epsilon", 0.0),
    (Sensitivity, "epsilon", 1.0),
    (Sensitivity, "delta", 0.0),
    (Sensitivity, "delta", 1.0),
    (SparseVI, "adam", True),  # without a step size
    (SparseVI, "draws", 1),
    (SparseVI, "n_steps", 0),
    (SparseVI, "step_size", -1.0),
    (SparseVI, "n_subsample", 0),
    (Subsample, "size", 1),
    (Subsample, "sampler", "slice"),
    (Subsample, "tune", 0),
]  # fmt: skip


@pytest.mark.parametrize(("method", "name", "value"), OUT_OF_RANGE)
def test_options_out_of_range_are_refused(method, name, value):
    with refused(InvalidOptionError, f"{name}={value!r}"):
        method(**{name: value})
