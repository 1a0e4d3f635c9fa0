"""Small pictures in SVG, as text: pure functions of a few numbers."""

import math
from collections.abc import Sequence

__all__ = ["curve_sketch", "weights_sketch"]

_WIDTH, _HEIGHT, _MARGIN = 240, 76, 6  # of a picture and its border, in pixels
_MOST_POINTS = 240  # one for each pixel


def weights_sketch(weights: Sequence[float], n_observations: float) -> str:
    """Draw weights, the largest first, and the weight of as many uniformly chosen rows.

    Parameters
    ----------
    weights : sequence of float
        Positive, in any order.
    n_observations : float
        Number of rows that they stand for.

    Returns
    -------
    str
        An ``<svg>``; empty where there are no weights.

    Examples
    --------
    >>> weights_sketch([3.0, 7.0], 10)[:4], weights_sketch([], 10)
    ('<svg', '')
    """
    if not len(weights):
        return ""
    ordered = sorted(weights, reverse=True)
    step = max(1, math.ceil(len(ordered) / _MOST_POINTS))
    shown = ordered[::step]
    uniform = n_observations / len(ordered)
    top = 1.04 * max(shown[0], uniform)
    bottom, width = _HEIGHT - _MARGIN, (_WIDTH - 2 * _MARGIN) / len(shown)
    heights = [_placed(weight / top) for weight in shown]
    steps = " ".join(f"V{y:.1f}h{width:.2f}" for y in heights)
    outline = f"M{_MARGIN} {bottom}{steps}V{bottom}z"
    line = _placed(uniform / top)
    return _picture(
        f"{len(ordered)} weights, the largest first",
        f'<path class="pmc-area" d="{outline}"/>',
        f'<path class="pmc-dashed" d="M{_MARGIN} {line:.1f}H{_WIDTH - _MARGIN}"/>',
    )


def curve_sketch(values: Sequence[float], label: str) -> str:
    """Draw positive numbers one after another, on a logarithmic scale.

    Parameters
    ----------
    values : sequence of float
        What is not positive and finite is left out.
    label : str
        What they are, for those who cannot see the picture.

    Returns
    -------
    str
        An ``<svg>``; empty where fewer than two numbers are left.

    Examples
    --------
    >>> curve_sketch([1.0, 0.1, 0.01], "divergence").count("<circle")
    3
    >>> curve_sketch([1.0, float("nan")], "divergence")
    ''
    """
    step = max(1, math.ceil(len(values) / _MOST_POINTS))
    kept = [(i, v) for i, v in enumerate(values) if v > 0 and math.isfinite(v)]
    kept = [*kept[:-1:step], *kept[-1:]]
    if len(kept) < 2:
        return ""
    logs = [math.log(v) for _, v in kept]
    low, span = min(logs), max(max(logs) - min(logs), 1e-9)
    first, length = kept[0][0], kept[-1][0] - kept[0][0]
    points = [
        (_MARGIN + (_WIDTH - 2 * _MARGIN) * (i - first) / length, _placed(0.92 * (y - low) / span))
        for (i, _), y in zip(kept, logs, strict=True)
    ]
    path = "L".join(f"{x:.1f} {y:.1f}" for x, y in points)
    circles = [f'<circle class="pmc-point" cx="{x:.1f}" cy="{y:.1f}" r="2.2"/>' for x, y in points]
    return _picture(
        label,
        f'<path class="pmc-axis" d="M{_MARGIN} {_HEIGHT - _MARGIN}H{_WIDTH - _MARGIN}"/>',
        f'<path class="pmc-curve" d="M{path}"/>',
        *(circles if len(points) <= 40 else circles[-1:]),
    )


def _placed(share: float) -> float:
    """Height in pixels, from above, of a share of the picture's height."""
    return _HEIGHT - _MARGIN - share * (_HEIGHT - 2 * _MARGIN)


def _picture(label: str, *parts: str) -> str:
    return (
        f'<svg width="{_WIDTH}" height="{_HEIGHT}" viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" '
        f'aria-label="{label}">{"".join(parts)}</svg>'
    )
