"""All that is used of nutpie beyond `nutpie.sample`, in one place.

nutpie is optional, and loaded when it is first used.  It may change these interfaces in any
release; `tests/unit/test_compat.py` says what broke.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import xarray as xr


def sample_density(
    density: Callable[[np.ndarray], tuple[float, np.ndarray]],
    start: np.ndarray,
    **settings: int,
) -> xr.Dataset:
    """Run a chain without a progress bar; Ctrl-C raises, where nutpie would return a short run.

    Parameters
    ----------
    density : callable
        Returns a log-density and its gradient (n_dims,) at a point (n_dims,).
    start : ndarray of shape (n_dims,)
    **settings
        ``draws``, ``tune`` and ``seed``.

    Returns
    -------
    xarray.Dataset
        What nutpie says of each draw, with the point itself as ``unconstrained_draw``.

    Raises
    ------
    RuntimeError
        If it cannot start.
    """
    import nutpie  # noqa: PLC0415
    from nutpie.compiled_pyfunc import from_pyfunc  # noqa: PLC0415

    def nothing(*_: object) -> dict[str, np.ndarray]:  # of variables: the points are kept
        return {}

    def begun(_: int) -> np.ndarray:
        return start

    model = from_pyfunc(
        len(start),
        lambda: density,
        lambda *_: nothing,
        expanded_dtypes=[],
        expanded_shapes=[],
        expanded_names=[],
        make_initial_point_fn=begun,
    )
    sampling = nutpie.sample(
        model,
        chains=1,
        cores=1,
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
    return idata["sample_stats"].to_dataset().isel(chain=0)
