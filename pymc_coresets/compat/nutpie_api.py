"""All that is used of nutpie beyond `nutpie.sample`, in one place.

nutpie is optional, and loaded when it is first used.  It may change these interfaces in any
release; `tests/unit/test_compat.py` says what broke.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import xarray as xr


def compiled_model(model: Any) -> Any:  # noqa: ANN401
    """Compile the density of a PyMC model."""
    import nutpie  # noqa: PLC0415

    return nutpie.compile_pymc_model(model)


def shared_names(compiled: Any) -> set[str]:  # noqa: ANN401
    """Names of the shared variables that a compiled density depends on."""
    return {variable.name for variable in compiled.shared_var_keys}


def with_values(compiled: Any, values: Mapping[str, np.ndarray]) -> Any:  # noqa: ANN401
    """Return the density with other values of the shared variables that it depends on."""
    used = shared_names(compiled)
    return compiled.with_data(**{name: value for name, value in values.items() if name in used})


def with_starts(compiled: Any, positions: np.ndarray) -> Any:  # noqa: ANN401
    """Return the density with chains that start at some of the positions, (n, D)."""
    return replace(compiled, initial_point_func=lambda seed: positions[seed % len(positions)])


def sample_model(compiled: Any, **settings: Any) -> xr.DataTree:  # noqa: ANN401
    """Sample without a progress bar; Ctrl-C raises, where nutpie would return a short run."""
    import nutpie  # noqa: PLC0415

    sampling = nutpie.sample(
        compiled,
        progress_bar=False,
        save_warmup=False,
        store_unconstrained=True,
        blocking=False,
        **settings,
    )
    try:
        idata: xr.DataTree = sampling.wait()
    except BaseException:
        sampling.cancel()
        raise
    return idata
