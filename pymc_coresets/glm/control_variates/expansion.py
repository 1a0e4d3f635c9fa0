"""What a quadratic for all rows is made of, and the rows that stand for what it misses."""

from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np
from pytensor.tensor import TensorVariable

from pymc_coresets.glm.control_variates.residual_rows import ResidualSample
from pymc_coresets.reading.quadratic import Curvature, Quadratic
from pymc_coresets.rows.values import Rows

__all__ = ["OF_A_GRADIENT", "AveragedRows", "Chosen", "Expansion", "Interface", "reliability"]


#: Log-likelihoods that a gradient of rows takes as long as.
OF_A_GRADIENT = 6


class Interface(Protocol):
    """The numbers c through which rows see the free variables."""

    @property
    def names(self) -> tuple[str, ...]:
        """A label for each."""

    @property
    def coefficients(self) -> TensorVariable:
        """c, of shape (p,): a graph of ``observations.parameters``."""

    @property
    def is_sparse(self) -> bool:
        """Whether few pairs of them meet in rows, of so many that this matters."""

    @property
    def entries_a_row(self) -> int:
        """How many numbers are read for each row."""


@dataclass(frozen=True, eq=False)
class AveragedRows:
    """Sums over all rows, times their base weights, and a sample of the rows.

    Parameters
    ----------
    slope : ndarray of shape (p,)
    curvature : ndarray or csr_array, of shape (p, p)
    residual : ndarray of shape (n_draws,)
        What the quadratics leave of all rows, in nats, up to a constant.
    sample : ResidualSample
        Rows, sampled by what their quadratics leave of them.
    """

    slope: np.ndarray
    curvature: Curvature
    residual: np.ndarray
    sample: ResidualSample

    def missed_by(self, size: int) -> float:
        """Predict the divergence of a coreset of so many rows, in nats."""
        variance = self.sample.variance(size)
        return variance * reliability(float(np.var(self.residual)), variance)


class Chosen(NamedTuple):
    """Weighted rows, and the quadratic that stands for all that they leave.

    Attributes
    ----------
    quadratic : Quadratic
    rows : Rows
    weights : ndarray of shape (len(rows),)
    left : float
        How many squared nats they leave of all rows, at the draws that they were chosen by.
    """

    quadratic: Quadratic
    rows: Rows
    weights: np.ndarray
    left: float


class Expansion[A: AveragedRows](Protocol):
    """How the rows of a model are approximated by quadratics."""

    @property
    def calibration(self) -> float:
        """Share of the rows of a mere sample that do as well with calibrated weights."""

    @property
    def interface(self) -> Interface:
        """In what."""

    def n_evaluations(self, n_draws: int, n_kept: int) -> int:
        """Return how many log-likelihoods of all rows take as long as an average."""

    def average(
        self, draws: np.ndarray, before: Quadratic | None, *, n_kept: int = 0, key: int = 0
    ) -> A:
        """Approximate all rows on average over draws (n_draws, p), about their mean.

        Parameters
        ----------
        draws : ndarray of shape (n_draws, p)
            Of c; a single one is a point.
        before : Quadratic, optional
            From whose posterior they were drawn.
        n_kept : int, default 0
            Size of the largest sample of rows that will be wanted.
        key : int, default 0
            Of their random numbers.
        """

    def chosen(
        self, averaged: A, quadratic: Quadratic, draws: np.ndarray, size: int, *, goal: float
    ) -> Chosen:
        """Choose rows beside the quadratic of all of them.

        Parameters
        ----------
        averaged : AveragedRows
            At the draws, with at least so many rows.
        quadratic : Quadratic
            Of all rows.
        draws : ndarray of shape (n_draws, p)
        size : int
        goal : float
            Squared nats that may be left.
        """


def reliability(signal: float, noise: float) -> float:
    """Return what to multiply an estimate of a sum by, so that its error is the least.

    That of what a quadratic leaves: with few rows, its noise may be more than all of it.

    Examples
    --------
    >>> reliability(3.0, 1.0)
    0.75
    """
    return signal / (signal + noise) if noise > 0 else 1.0
