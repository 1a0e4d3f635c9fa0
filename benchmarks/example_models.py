"""The models of ``examples/``."""

import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import pymc as pm

__all__ = ["EXAMPLES", "example", "example_models"]

EXAMPLES = Path(__file__).parents[1] / "examples"
sys.path.insert(0, str(EXAMPLES))  # the examples are scripts, which import one another by name


def example(name: str) -> Any:  # noqa: ANN401 - a module, of any names
    """Return one of these scripts."""
    return import_module(name)


def example_models() -> dict[str, Callable[[], pm.Model]]:
    """Return the models of all examples, by name."""
    scripts = ("randhie", "robust", "varying_slopes", "mixture", "flights")
    return {name: make for s in scripts for name, make in example(s).MODELS.items()}
