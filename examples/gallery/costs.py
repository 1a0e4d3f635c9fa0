"""What NUTS costs: the gradients of a run, and the time of one.

Not a page of the gallery itself: its pages end with these figures.
"""

import timeit
from collections.abc import Mapping

import pymc as pm
import xarray as xr

__all__ = ["print_costs"]


def print_costs(idata: xr.DataTree, models: Mapping[str, pm.Model]) -> None:
    """Print what as many gradients as a run of NUTS took would cost with each of some models."""
    n_gradients = int(idata["sample_stats"]["n_steps"].sum())
    for name, model in models.items():
        seconds = n_gradients * seconds_per_gradient(model)
        print(f"{name}: {n_gradients:,} gradients take {seconds:,.1f} s")


def seconds_per_gradient(model: pm.Model) -> float:
    """Return the time of one gradient of the log-density, the best of ten."""
    gradient, point = model.compile_dlogp(), model.initial_point()
    return min(timeit.repeat(lambda: gradient(point), number=1, repeat=10))
