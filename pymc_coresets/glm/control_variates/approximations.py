"""Weighted rows beside a quadratic: as they were chosen, and measured at draws."""

from dataclasses import dataclass, fields

import numpy as np

from pymc_coresets.glm.control_variates.hierarchy import ConditionalGaussian
from pymc_coresets.reading.quadratic import Quadratic
from pymc_coresets.sampling.steps.near_normal import GriddedMarginals
from pymc_coresets.solving.solution import Selection


@dataclass(frozen=True, eq=False, kw_only=True)
class QuadraticSelection(Selection):
    """Weighted rows beside a quadratic, and that of all rows; as many rows were tried.

    The chosen rows may be fewer than that.
    """

    of_all: Quadratic
    tried: int

    @classmethod
    def of_rows(cls, chosen: Selection, *, of_all: Quadratic, tried: int) -> "QuadraticSelection":
        """Return weighted rows with the quadratic of all rows."""
        kept = {each.name: getattr(chosen, each.name) for each in fields(Selection)}
        return cls(**kept, of_all=of_all, tried=tried)


@dataclass(frozen=True, eq=False, kw_only=True)
class Approximation:
    """What is known of the draws of rows and a quadratic that represent all rows."""

    of_all: Quadratic
    points: np.ndarray
    near: tuple[ConditionalGaussian, ...]
    along_axes: tuple[GriddedMarginals, ...]
