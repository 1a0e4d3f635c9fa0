"""The report of a coreset: the verdict, facts, and the time of each stage of the build."""

from base64 import b64encode
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.util import find_spec
from io import BytesIO

from pymc_coresets.diagnostics.verdicts import Verdict
from pymc_coresets.display import as_html, as_text
from pymc_coresets.optional import has_room, module_of
from pymc_coresets.results.facts import facts_of
from pymc_coresets.weighted_rows import WeightedRows, verdict_of

_PREFIX = "seconds "  # of the attributes of a history
_BAR = 30  # characters
_TITLE = "Report of a coreset"


@dataclass(frozen=True, kw_only=True, repr=False)
class Report:
    """Result of `Coreset.report`: text in a terminal; with colour and a plot in a notebook.

    Parameters
    ----------
    verdict : Verdict or None
        Verdict of the coreset's certificate; None if there is none.
    facts : mapping of str to str
        Facts about the coreset, by name.
    seconds : mapping of str to float
        Wall time of each stage of the build, in their order.
    within : mapping of str to float
        Wall time of parts of the stages that measure coresets: in the sampler, and in
        log-likelihoods.
    coreset : Coreset, optional
        Its weights are plotted in a notebook, if Matplotlib is installed.

    Examples
    --------
    >>> Report(
    ...     verdict=None,
    ...     facts={"rows": "3 of 900"},
    ...     seconds={"reading the model": 0.5, "rounds": 1.5},
    ... )
    Report of a coreset
      rows  3 of 900
    The build took 2.0 s:
      reading the model  0.5 s  ████████
      rounds             1.5 s  ██████████████████████
    """

    verdict: Verdict | None
    facts: Mapping[str, str]
    seconds: Mapping[str, float]
    within: Mapping[str, float] = field(default_factory=dict)
    coreset: WeightedRows | None = None

    @property
    def times(self) -> list[str]:
        """One line for each stage: its seconds, and a bar for its share of the build."""
        total = sum(self.seconds.values())
        if not total:
            return []
        name_width, width = max(map(len, self.seconds)), len(f"{total:,.1f}")
        lines = [
            f"  {name:<{name_width}}  {seconds:{width},.1f} s  "
            f"{'█' * round(_BAR * seconds / total)}".rstrip()
            for name, seconds in self.seconds.items()
        ]
        within = " and ".join(
            f"{seconds:,.1f} s in {name}" for name, seconds in self.within.items()
        )
        return [f"The build took {total:,.1f} s:", *lines, *[f"Of these, {within}."] * bool(within)]

    def __repr__(self) -> str:
        return as_text(_TITLE, self.verdict, self.facts, self.times)

    def _repr_html_(self) -> str:
        text = as_html(_TITLE, self.verdict, self.facts, self.times)
        return text if self.coreset is None else f"{text}{_picture(self.coreset)}"


def report(coreset: WeightedRows) -> Report:
    """Report on the build: the verdict first, then the facts, and the time of each stage.

    In a notebook, a plot of the weights follows.  Nothing is computed: `check` judges draws, and
    `summary` compares the chosen rows with all rows.

    Returns
    -------
    Report

    Examples
    --------
    >>> import numpy as np, pymc as pm
    >>> from pymc_coresets import build_coreset
    >>> with pm.Model():
    ...     y = pm.Normal("y", pm.Normal("mu"), 1.0, observed=np.arange(500.0) / 500)
    ...     coreset = build_coreset(random_seed=1, progressbar=False)
    >>> coreset.report().verdict
    Reliable: the draws can be used as they are; the symmetrised KL divergence of their posterior
    from the full one is at most 0.01 nats.
    >>> list(coreset.report().seconds)
    ['units', 'reading the model', 'rounds', 'beyond the draws']
    """
    kept = coreset.history.attrs
    names = [name for name in kept if name.startswith(_PREFIX)]
    within = {}
    if coreset.history.sizes.get("step", 0):
        last = coreset.history.isel(step=-1)
        clocks = {"the sampler": "seconds_drawing", "log-likelihoods": "seconds_evaluating"}
        found = {name: float(last[clock]) for name, clock in clocks.items() if clock in last}
        within = {name: seconds for name, seconds in found.items() if seconds > 0}
    return Report(
        verdict=verdict_of(coreset),
        facts=facts_of(coreset),
        seconds={name.removeprefix(_PREFIX): float(kept[name]) for name in names},
        within=within,
        coreset=coreset,
    )


def _picture(coreset: WeightedRows) -> str:
    """Return the plot of the weights as an image of HTML; nothing without weights or plots."""
    if not coreset.weights.size or find_spec("matplotlib") is None or not has_room("after"):
        return ""
    from matplotlib.figure import Figure  # noqa: PLC0415 - Matplotlib is an extra

    figure, file = Figure(figsize=(6.4, 2.8), layout="constrained"), BytesIO()
    module_of("after.plots").plot_weights(coreset, ax=figure.subplots())
    figure.savefig(file, format="png", dpi=120)
    image = b64encode(file.getvalue()).decode()
    source = f"data:image/png;base64,{image}"
    return f'<img alt="Weights of the coreset, largest first" width="640" src="{source}">'
