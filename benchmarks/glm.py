"""Generalised linear models: ``python -m benchmarks.glm``.

Four parts, all by default. ``--quality``: coresets of the papers' synthetic logistic regressions
(Huggins, Campbell and Broderick 2016), by uniform sampling, by sensitivities and by the default
method, against the full posterior. ``--methods``: PASS-LR2 (Huggins, Adams and Broderick 2017)
against Laplace's approximation, NUTS on all rows, the default coreset and the mode. ``--one-pass``:
what PASS-GLM's pass over the data costs compared with ``X.T @ X``; X takes 4 GB by default.
``--failing``: data that PASS-LR2 is not suited to. ``--figures`` draws the first two parts.

Seconds are processor seconds of all threads, so that other programs do not count. They include
the compilation of models.
"""

import argparse
from pathlib import Path

from benchmarks.glm_methods import methods_report, run_methods
from benchmarks.glm_pass import failing_report, one_pass_report
from benchmarks.glm_quality import quality_report, run_quality
from benchmarks.tables import parser_of, save

PARTS = ("quality", "methods", "one_pass", "failing")


def parsed() -> argparse.Namespace:
    parser = parser_of(__doc__)
    for part in PARTS:
        parser.add_argument(f"--{part.replace('_', '-')}", action="store_true")
    parser.add_argument("--n", type=int, default=1_000_000, help="rows, for --quality")
    parser.add_argument("--repeats", type=int, default=10, help="of the methods that sample rows")
    parser.add_argument("--auto", type=int, default=1, help="repeats of the default method")
    parser.add_argument("--rows", type=int, default=50_000, help="rows, for --methods")
    parser.add_argument("--pass-n", type=int, default=10_000_000, help="rows, for --one-pass")
    parser.add_argument("--pass-p", type=int, default=50, help="columns, for --one-pass")
    parser.add_argument("--figures", type=Path, metavar="FOLDER", help="draw the results there")
    return parser.parse_args()


def main() -> None:
    options = parsed()
    chosen = {part for part in PARTS if getattr(options, part)} or set(PARTS)
    if "one_pass" in chosen:
        print("### One pass\n\n" + one_pass_report(options.pass_n, options.pass_p), flush=True)
    if "failing" in chosen:
        print("\n### A case built to fail\n\n" + failing_report(), flush=True)
    if "methods" in chosen:
        compared = run_methods(options.rows)
        report = methods_report(compared)
        print(f"\n### Methods, N = {options.rows:,}\n\n{report}", flush=True)
        save(options.tables, "glm-methods", report)
        if options.figures:
            from benchmarks.glm_figures import draw_methods  # noqa: PLC0415 - loads matplotlib

            draw_methods(compared, options.figures / "glm_methods.png")
    if "quality" in chosen:
        results = run_quality(options.n, options.repeats, options.auto)
        print(
            f"\n### Coresets, N = {options.n:,}, repeats: {options.repeats}\n\n"
            + quality_report(results)
        )
        if options.figures:
            from benchmarks.glm_figures import draw_quality  # noqa: PLC0415

            draw_quality(results, options.figures / "glm_quality.png")


if __name__ == "__main__":
    main()
