"""What a verdict is: how far draws can be trusted, and why."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum, auto
from typing import Any, Self


class Level(StrEnum):
    """How far draws can be trusted, from the best to the worst.

    Examples
    --------
    >>> Level.REWEIGHTED.reliable, Level.DOUBTFUL.reliable
    (True, False)
    >>> Level("Doubtful").worse_than(Level.RELIABLE)
    True
    """

    #: Draws of the full posterior by other means, which were not judged.
    UNJUDGED = "Not judged"
    #: Draws can be used as they are.
    RELIABLE = "Reliable"
    #: Importance weights turn the draws into draws of the full posterior.
    REWEIGHTED = "Reliable once re-weighted"
    #: Neither of these can be said, though the chains have converged.
    DOUBTFUL = "Doubtful"
    #: Draws are wrong, or have not converged.
    UNUSABLE = "Not to be used"

    @property
    def reliable(self) -> bool:
        """Whether draws can stand for the full posterior, re-weighted if necessary."""
        return self in {Level.RELIABLE, Level.REWEIGHTED}

    @property
    def colour(self) -> str:
        """Colour of a verdict in notebooks, readable on white and on black; empty without one."""
        return _COLOURS.get(self, "")

    def worse_than(self, other: "Level") -> bool:
        """Whether draws of this level can be trusted less than those of another."""
        levels = list(Level)
        return levels.index(self) > levels.index(other)


_GREEN, _AMBER, _RED = "#2a9d5c", "#c98500", "#d94a3d"
_COLOURS = {
    Level.RELIABLE: _GREEN,
    Level.REWEIGHTED: _GREEN,
    Level.DOUBTFUL: _AMBER,
    Level.UNUSABLE: _RED,
}


class Reason(StrEnum):
    """What decided a verdict.

    Examples
    --------
    >>> Reason("unseen_mode") is Reason.UNSEEN_MODE
    True
    """

    ALL_ROWS = auto()  # pm.sample took all rows
    EXACT = auto()  # the posterior is that of all rows
    INTEGRALS = auto()  # all units are kept, and integrals over their variables are accurate
    TOLERANCE = auto()  # the divergence is within the tolerance
    WEIGHTS = auto()  # importance weights correct the difference
    FEW_DRAWS = auto()  # the re-weighted draws are worth too few
    HEAVY_TAIL = auto()  # the importance weights have a heavy tail
    COLLAPSED = auto()  # a few draws carry all the weight
    IMPROPER = auto()  # the approximate posterior is improper
    UNSEEN_MODE = auto()  # draws missed a mode
    CAVEAT = auto()  # an error is unknown
    TAIL = auto()  # the full posterior reaches further
    LEVELS = auto()  # draws of variables that were integrated out are not those of some levels
    DIVERGENCES = auto()  # NUTS does not enter a part of the posterior
    UNFINISHED = auto()  # time was used up before draws were checked and corrected
    UNCONVERGED = auto()  # the chains have not converged
    STUCK = auto()  # the chains are stuck
    SEPARATE_MODES = auto()  # the chains stay in modes of their own
    CONSTANT = auto()  # a variable is constant
    COPIED = auto()  # draws are copies of others
    FOREIGN = auto()  # the draws are not from the approximate posterior
    IMPOSSIBLE = auto()  # the full data exclude some of the draws


@dataclass(frozen=True, repr=False)
class Verdict:
    """How far draws can be trusted, why, and in words; `print` shows the words.

    Programs read the level and the reason.  The words are for people, and may change.

    Parameters
    ----------
    level : Level
        "Reliable", "Reliable once re-weighted", "Doubtful", "Not to be used"; or "Not judged".
    reason : Reason
        What decided.
    text : str
        Complete sentences, with the variables and a remedy.

    Examples
    --------
    >>> found = Verdict(Level.DOUBTFUL, Reason.CAVEAT, "Doubtful: rows moved.")
    >>> found.level.reliable, found.level is Level.DOUBTFUL
    (False, True)
    >>> print(found)
    Doubtful: rows moved.
    """

    level: Level
    reason: Reason
    text: str

    @classmethod
    def starting(cls, level: Level, reason: Reason, rest: str) -> Self:
        """Return a verdict whose words are the level, a colon, and the rest.

        Examples
        --------
        >>> Verdict.starting(Level.UNUSABLE, Reason.STUCK, "the chains are stuck.")
        Not to be used: the chains are stuck.
        """
        return cls(level, reason, f"{level}: {rest}")

    def and_text(self, *sentences: str) -> Self:
        """Return the same verdict with further sentences; empty ones are left out."""
        return replace(self, text=" ".join(filter(None, (self.text, *sentences))))

    @property
    def attrs(self) -> dict[str, str]:
        """The verdict as attributes of draws, which are text in files, too."""
        return {"verdict": self.text, "level": str(self.level), "reason": str(self.reason)}

    @classmethod
    def stored(cls, attrs: Mapping[Any, Any]) -> Self:
        """Return the verdict that attributes hold.

        Examples
        --------
        >>> found = Verdict.starting(Level.UNUSABLE, Reason.STUCK, "the chains are stuck.")
        >>> Verdict.stored(found.attrs) == found
        True
        """
        return cls(Level(attrs["level"]), Reason(attrs["reason"]), attrs["verdict"])

    @property
    def colour(self) -> str:
        """Colour of the words in notebooks."""
        return self.level.colour

    def __str__(self) -> str:
        return self.text

    __repr__ = __str__


def doubts_of_levels(unreliable: str) -> Iterator[Verdict]:
    """Return the doubt about levels whose own variables could not be drawn, if there are any.

    Parameters
    ----------
    unreliable : str
        These levels, with a remedy; empty if there are none.

    Examples
    --------
    >>> list(doubts_of_levels("draws of 'effect' are not reliable at level 'b'."))
    [Doubtful: draws of 'effect' are not reliable at level 'b'.]
    """
    if unreliable:
        yield Verdict.starting(Level.DOUBTFUL, Reason.LEVELS, unreliable)
