"""Random models: a seed and a number to the source of a model."""

import numpy as np

from tests.grammar.likelihoods import likelihood
from tests.grammar.program import Program

__all__ = ["random_source"]


def random_source(seed: int, number: int) -> str:
    """Write the model of this number; it depends on nothing else."""
    program = Program(np.random.default_rng([seed, number]))
    likelihood(program)
    return program.source()
