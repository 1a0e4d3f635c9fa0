"""The models of ``examples/``, and what these scripts share."""

import sys
from collections.abc import Callable
from functools import partial
from importlib import import_module
from pathlib import Path

import pymc as pm

EXAMPLES = Path(__file__).parents[1] / "examples"
sys.path.insert(0, str(EXAMPLES))  # the examples are scripts, which import one another by name

from workflow import BUILD, FULL, SAMPLE, Fit, Stopwatch, fit_coreset, fit_full  # noqa: E402

__all__ = [
    "BUILD",
    "FULL",
    "IMPROPER",
    "SAMPLE",
    "Fit",
    "Stopwatch",
    "available",
    "fit_coreset",
    "fit_full",
]

SCRIPTS = ("randhie", "robust", "varying_slopes", "mixture")
IMPROPER = "mixture_two_noises_improper"


def available(*, flights: bool) -> dict[str, Callable[[], pm.Model]]:
    """Return the models of all examples, by name."""
    scripts = (*SCRIPTS, "flights") if flights else SCRIPTS
    models = {name: make for s in scripts for name, make in import_module(s).MODELS.items()}
    mixture = import_module("mixture").make_model
    return models | {IMPROPER: partial(mixture, common_noise=False)}
