"""Nodes and weights of an integral over the variables of a unit, for a standard normal weight."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from itertools import combinations_with_replacement, permutations, product
from math import factorial
from typing import NamedTuple

import numpy as np
from numpy.polynomial.hermite_e import hermegauss, hermeval
from scipy.optimize import linprog, nnls

from pymc_coresets.numerics import log_standard_normal

_DEGREES = (5, 7, 9, 11, 13, 17, 21, 33, 49)
# By the number of axes: of rules without an error, beside those of fewer nodes.
_TO_JUDGE_BY = {1: 401, 2: 61, 3: 23, 4: 15, 5: 11, 6: 9}
# Of rules of a fifth of those nodes or less, whose error is small in most models.
_TO_JUDGE_FIRST_BY = {2: (21,), 3: (13, 17)}
# Of rules for the mean, covariance and skewness of a unit, which need few digits.
_FOR_MOMENTS = {1: 31, 2: 13, 3: 9, 4: 7, 5: 5, 6: 5}
# Of rules for tails along one axis, which are never better than Gauss's with fewer nodes.
_DEGREES_FOR_TAILS = (61, 81, 121, 161, 241)


class Rule(NamedTuple):
    """Which nodes units are integrated by.

    Parameters
    ----------
    degree : int
        Of the polynomials that are integrated exactly, times a normal density; 0 for all values of
        discrete variables.
    tails : bool, default False
        As many nodes along one axis as Gauss's rule of that degree has, but for tails: see
        `Nodes.for_tails`.
    first, last : int, default 0, None
        Which of these nodes are kept, as `slice` has it: the others add nothing.
    """

    degree: int
    tails: bool = False
    first: int = 0
    last: int | None = None


@dataclass(frozen=True, eq=False)
class Nodes:
    """``integral of f(x) N(x; 0, I) dx = sum_k w_k f(x_k)``, for smooth functions of q numbers.

    Parameters
    ----------
    points : ndarray of shape (n_nodes, q)
    log_weights : ndarray of shape (n_nodes,)
        Of ``log(w_k) + |x_k|^2 / 2 + (q / 2) log(2 pi)``: what a node's log-density gets for an
        integral without the weight.
    degree : int
        Of the polynomials that are integrated exactly; 0 where nodes are all values of discrete
        variables.

    Examples
    --------
    >>> nodes = Nodes.of_degree(5, 2)
    >>> nodes.points.shape
    (9, 2)
    >>> h = -0.5 * np.square(nodes.points).sum(axis=1)  # its integral is 2 pi
    >>> bool(np.isclose(np.exp(nodes.log_weights + h).sum(), 2 * np.pi))
    True
    """

    points: np.ndarray
    log_weights: np.ndarray
    degree: int

    @classmethod
    def of_degree(cls, degree: int, n_dims: int) -> "Nodes":
        """Take few nodes with positive weights, exact for polynomials of an odd degree.

        Along one axis these are Gauss's, and degree 1 is Laplace's method.  Along several, they are
        sets of nodes that any permutation of the axes, and any change of signs, leaves as it is.
        """
        # Of degree 13, the fewest in three dimensions are 247.  For a location, a slope and a scale
        # of each unit, their error was thirty times that of the 311 of a product, and three times
        # that of degree 11.
        is_product = n_dims < 2 or degree == 1 or degree > 11
        found = _product_rule if is_product else _symmetric_rule
        points, weights = found(degree, n_dims)
        return cls(points, np.log(weights) - log_standard_normal(points), degree)

    @classmethod
    def for_tails(cls, n_nodes: int) -> "Nodes":
        """Take nodes along one axis that reach into tails: equidistant ones in asinh(x).

        The trapezoidal rule in t with x = sinh(t).  Its error falls exponentially with the number
        of nodes, also where tails are those of a Student t distribution, to which Gauss's nodes
        hardly reach.  For normal tails, Gauss's need about half as many.

        Examples
        --------
        >>> nodes = Nodes.for_tails(61)
        >>> of_cauchy = -np.log(np.pi * (1 + nodes.points[:, 0] ** 2))
        >>> of_normal = -np.square(nodes.points[:, 0]) / 2
        >>> [round(float(np.exp(nodes.log_weights + h).sum()), 3) for h in (of_cauchy, of_normal)]
        [0.999, 2.507]
        """
        end = n_nodes / 12 + 1.9  # where errors of the step and of what is beyond are about equal
        t = np.linspace(-end, end, n_nodes)
        return cls(np.sinh(t)[:, None], np.log((t[1] - t[0]) * np.cosh(t)), 2 * n_nodes - 1)

    @classmethod
    def of_rule(cls, rule: Rule, n_dims: int) -> "Nodes":
        """Take the nodes of a rule.

        Examples
        --------
        >>> [len(Nodes.of_rule(r, 1)) for r in (Rule(9), Rule(61, True), Rule(61, True, 3, 20))]
        [5, 31, 17]
        """
        if not rule.tails:
            return cls.of_degree(rule.degree, n_dims)
        whole, kept = cls.for_tails((rule.degree + 1) // 2), slice(rule.first, rule.last)
        return cls(whole.points[kept], whole.log_weights[kept], whole.degree)

    @property
    def weights(self) -> np.ndarray:
        """The weights w_k, which add up to one."""
        found: np.ndarray = np.exp(self.log_weights + log_standard_normal(self.points))
        return found

    @classmethod
    def of_values(cls, values: Sequence[Sequence[int]]) -> "Nodes":
        """Take all combinations of the values of discrete variables: their sum is exact.

        Examples
        --------
        >>> Nodes.of_values([[0, 1], [0, 1, 2]]).points.shape
        (6, 2)
        """
        points = np.array(list(product(*values)), dtype=float)
        return cls(points, np.zeros(len(points)), 0)

    def __len__(self) -> int:
        return len(self.points)


def _product_rule(degree: int, n_dims: int) -> tuple[np.ndarray, np.ndarray]:
    """Return all combinations of Gauss-Hermite nodes along the axes that count for anything."""
    x, w = hermegauss((degree + 1) // 2)
    points = np.array(list(product(x, repeat=n_dims)))
    weights = np.prod(list(product(w, repeat=n_dims)), axis=1)
    # Nodes of products with a ten-millionth of the largest weight add little: 1e-7 for a normal
    # density, but a part of the tails of others.  Rules that judge others have to see that.
    is_judge = degree >= _TO_JUDGE_BY.get(n_dims, 0)
    kept = weights > (0.0 if n_dims == 1 else (1e-16 if is_judge else 1e-7) * weights.max())
    return points[kept], weights[kept] / weights[kept].sum()


@cache
def _symmetric_rule(degree: int, n_dims: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the symmetric sets of nodes of a product rule that are fewest, by linear programming.

    A set is exact for odd powers by itself.  For even ones, weights of the sets have to make the
    means of products of Hermite polynomials vanish: as many equations as there are partitions.
    """
    x, _ = hermegauss(degree // 2 + 1 | 1)  # an odd number, with a node at zero
    axis = np.abs(x[len(x) // 2 :])
    sets = list(combinations_with_replacement(range(len(axis)), n_dims))
    powers = [
        p
        for p in combinations_with_replacement(range(degree // 2 + 1), n_dims)
        if sum(p) <= degree // 2
    ]
    norms = [factorial(2 * i) ** -0.5 for i in range(degree // 2 + 1)]
    of_axis = np.array([hermeval(axis, [0] * 2 * i + [norm]) for i, norm in enumerate(norms)])
    means = np.array(
        [
            [
                np.mean([np.prod(of_axis[list(p), list(some)]) for some in set(permutations(s))])
                for s in sets
            ]
            for p in powers
        ]
    )
    sizes = np.array([len(_signed(axis[list(s)])) for s in sets], dtype=float)
    exact = np.zeros(len(powers))
    exact[0] = 1.0
    chosen = np.flatnonzero(linprog(sizes, A_eq=means, b_eq=exact, method="highs-ds").x)
    total, _ = nnls(means[:, chosen], exact)
    points = [_signed(axis[list(sets[i])]) for i in chosen]
    weights = [np.full(len(p), w / len(p)) for p, w in zip(points, total, strict=True)]
    return np.concatenate(points), np.concatenate(weights)


def _signed(point: np.ndarray) -> np.ndarray:
    """Return all different permutations of a point's entries, with all signs."""
    signs = [np.array(s) for s in product((-1.0, 1.0), repeat=len(point))]
    found: np.ndarray = np.unique(
        [np.array(p) * s for s in signs for p in set(permutations(point))], axis=0
    )
    return found


def has_rules(n_dims: int) -> bool:
    """Whether there are nodes for so many axes.

    Examples
    --------
    >>> has_rules(6), has_rules(7)
    (True, False)
    """
    return n_dims in _TO_JUDGE_BY


def first_degree(n_dims: int, n_unit_rows: float = 1.0) -> int:
    """Return with nodes of which degree to begin.

    Parameters
    ----------
    n_dims : int
        Number of axes q, for which there are nodes.
    n_unit_rows : float
        Mean number of rows of a unit: with many, its density is closer to normal.

    Examples
    --------
    >>> first_degree(1), first_degree(2, 100.0)
    (13, 5)
    """
    least = _DEGREES[0]
    first = {1: 13, 2: 9}.get(n_dims, least)
    return max(first - 4, least) if n_unit_rows >= 50.0 else first


def lower_rules(rule: Rule) -> list[Rule]:
    """Return rules of fewer nodes, for densities that are almost normal.

    Examples
    --------
    >>> [r.degree for r in lower_rules(Rule(13))], lower_rules(Rule(81, tails=True))
    ([5, 7, 9, 11], [])
    """
    return [Rule(d) for d in _DEGREES if d < rule.degree and not rule.tails]


def higher_rules(rule: Rule, n_dims: int) -> list[Rule]:
    """Return rules that may have a smaller error, those of few nodes first.

    Examples
    --------
    >>> [r.degree for r in higher_rules(Rule(13), 1)], [r.degree for r in higher_rules(Rule(13), 4)]
    ([17, 21, 33, 49, 61, 81, 121, 161, 241], [])
    """
    judge = rule_to_judge_by(n_dims)
    if n_dims > 1:
        return [Rule(d) for d in _DEGREES if rule.degree < d < judge.degree]
    # With as many nodes as these, those for tails are better where Gauss's have an error.
    gauss = [Rule(d) for d in _DEGREES if d < _DEGREES_FOR_TAILS[0]]
    found = [*gauss, *(Rule(d, tails=True) for d in _DEGREES_FOR_TAILS)]
    return [r for r in found if r.degree > rule.degree]


def rule_to_judge_by(n_dims: int) -> Rule:
    """Return the rule whose nodes have no error, beside those of fewer.

    Examples
    --------
    >>> rule_to_judge_by(1), rule_to_judge_by(6).degree
    (Rule(degree=401, tails=True, first=0, last=None), 9)
    """
    return Rule(_TO_JUDGE_BY[n_dims], tails=n_dims == 1)


def rule_for_moments(n_dims: int) -> Rule:
    """Return the rule by which the moments of units are found that their nodes lie around.

    Examples
    --------
    >>> rule_for_moments(2).degree
    13
    """
    return Rule(_FOR_MOMENTS[n_dims])


def rules_to_judge_first_by(n_dims: int) -> list[Rule]:
    """Return rules of fewer nodes, to judge by where their own error is small.

    Examples
    --------
    >>> [rule.degree for rule in rules_to_judge_first_by(3)], rules_to_judge_first_by(5)
    ([13, 17], [])
    """
    return [Rule(degree) for degree in _TO_JUDGE_FIRST_BY.get(n_dims, ())]
