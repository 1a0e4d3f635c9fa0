"""The style of results in notebooks."""

__all__ = ["STYLE"]

_LIGHT = {"ink": "#1f2430", "paper": "#ffffff", "faint": "#5c6169", "line": "#d5d8dd"}
_DARK = {"ink": "#e4e6ea", "paper": "#16181d", "faint": "#a3a9b3", "line": "#3b4049"}
_PENS_LIGHT = {"blue": "#0b6e99", "orange": "#c2521f", "amber": "#8f6700"}
_PENS_DARK = {"blue": "#5ab4dc", "orange": "#f0905f", "amber": "#e3b341"}
#: Where themes of JupyterLab, of PyData's documentation and of VS Code say it.
_THEMED = {
    "ink": ("--jp-content-font-color0", "--pst-color-text-base", "--vscode-editor-foreground"),
    "paper": ("--jp-layout-color0", "--pst-color-background", "--vscode-editor-background"),
    "faint": (
        "--jp-content-font-color2",
        "--pst-color-text-muted",
        "--vscode-descriptionForeground",
    ),
    "line": ("--jp-border-color2", "--pst-color-border", "--vscode-panel-border"),
}


def _colours(paper: dict[str, str], pens: dict[str, str]) -> str:
    themed = {}
    for name, colour in paper.items():
        value = colour
        for variable in reversed(_THEMED[name]):
            value = f"var({variable},{value})"
        themed[name] = value
    return "".join(f"--pmc-{name}:{value};" for name, value in (themed | pens).items())


_RULES = """
.pmc-plain{display:none}
.pmc-card{display:block!important;max-width:46em;padding:.6em .9em;line-height:1.45;
 color:var(--pmc-ink);background:var(--pmc-paper);border:1px solid var(--pmc-line);
 border-radius:6px;font-size:.93em}
.pmc-title{padding-bottom:.35em;margin-bottom:.45em;border-bottom:1px solid var(--pmc-line)}
.pmc-note{margin:.2em 0;font-size:.9em;color:var(--pmc-faint)}
.pmc-card table{border-collapse:collapse;border:0;margin:.3em 0;font-size:inherit;
 color:inherit;background:none}
.pmc-card .pmc-scroll{overflow-x:auto}
.pmc-card tr,.pmc-card tr:nth-child(even),.pmc-card tr:nth-child(odd){background:none}
.pmc-card th,.pmc-card td{border:0;padding:.12em .9em .12em 0;vertical-align:top;
 text-align:left;color:inherit;background:none}
.pmc-card .pmc-facts th{font-weight:normal;color:var(--pmc-faint);white-space:nowrap}
.pmc-card .pmc-facts td{overflow-wrap:anywhere}
.pmc-card .pmc-numbers td,.pmc-card .pmc-numbers thead th{text-align:right;
 font-variant-numeric:tabular-nums;white-space:nowrap}
.pmc-card .pmc-numbers thead th{color:var(--pmc-faint);font-weight:normal}
.pmc-card .pmc-numbers thead th:first-child{text-align:left}
.pmc-card .pmc-numbers tbody th{font-weight:normal}
.pmc-card .pmc-numbers thead{border-bottom:1px solid var(--pmc-line)}
.pmc-pictures{display:flex;flex-wrap:wrap;gap:.4em 1.6em}
.pmc-card figure{margin:0 0 .3em}
.pmc-card figcaption{margin:0;font:inherit;font-size:.85em;color:var(--pmc-faint);text-align:left}
.pmc-area{fill:var(--pmc-blue);fill-opacity:.3;stroke:var(--pmc-blue);stroke-width:1}
.pmc-dashed{fill:none;stroke:var(--pmc-faint);stroke-dasharray:4 3}
.pmc-axis{fill:none;stroke:var(--pmc-line)}
.pmc-curve{fill:none;stroke:var(--pmc-orange);stroke-width:1.5}
.pmc-point{fill:var(--pmc-orange)}
.pmc-verdict{margin:.45em 0 .1em;padding-left:.7em;border-left:3px solid var(--pmc-line)}
.pmc-good{border-color:var(--pmc-blue)}.pmc-good b{color:var(--pmc-blue)}
.pmc-doubtful{border-color:var(--pmc-amber)}.pmc-doubtful b{color:var(--pmc-amber)}
.pmc-bad{border-color:var(--pmc-orange)}.pmc-bad b{color:var(--pmc-orange)}
.pmc-bar{display:inline-block;width:12em;height:.5em;border-radius:.25em;
 background:var(--pmc-line);overflow:hidden}
.pmc-bar i{display:block;height:100%;background:var(--pmc-blue)}
"""

_DARK_COLOURS = _colours(_DARK, _PENS_DARK)

#: Every rule begins with a class of ours. A theme that says that it is dark, or light, decides;
#: otherwise the system does.
STYLE = (
    f".pmc{{{_colours(_LIGHT, _PENS_LIGHT)}}}"
    f"@media (prefers-color-scheme:dark){{.pmc{{{_DARK_COLOURS}}}}}"
    "html[data-theme=light] .pmc,body[data-jp-theme-light=true] .pmc,body.vscode-light .pmc"
    f"{{{_colours(_LIGHT, _PENS_LIGHT)}}}"
    "html[data-theme=dark] .pmc,body[data-jp-theme-light=false] .pmc,body.vscode-dark .pmc"
    f"{{{_DARK_COLOURS}}}"
) + _RULES.replace("\n ", "").replace("\n", "")
