"""The models of ``examples/``."""

import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path

import pymc as pm

__all__ = ["EXAMPLES", "example_models"]

EXAMPLES = Path(__file__).parents[1] / "examples"
sys.path.insert(0, str(EXAMPLES))  # the examples are scripts, which import one another by name


def example_models() -> dict[str, Callable[[], pm.Model]]:
    """Return the models of all examples, by name."""
    scripts = ("randhie", "robust", "varying_slopes", "mixture", "flights")
    return {name: make for s in scripts for name, make in import_module(s).MODELS.items()}
