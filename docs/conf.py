"""How `make docs` builds the site. Nothing is loaded from elsewhere when a page is viewed."""

import os
import sys
from pathlib import Path

import pymc_coresets

HERE = Path(__file__).parent
sys.path.append(str(HERE / "_ext"))

project = "pymc_coresets"
author = "The pymc_coresets developers"
project_copyright = author
version = release = pymc_coresets.__version__

# Where the sources are published, as "owner/name" on GitHub. Empty: pages have no links to them.
REPOSITORY = ""

extensions = [
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "numpydoc",
    "myst_parser",
    "sphinx_copybutton",
    "sphinx_design",
    "sphinx_gallery.gen_gallery",
    "citations",
    "mathml",
    "measured",
    "outside_links",
    "outside_names",
    "own_members",
    "pictures",
    "unbroken",
]
exclude_patterns = ["_build", "tables", "gallery/*.ipynb", "gallery/*.py", "gallery/*.md5"]
templates_path = ["_templates"]

# Headings have the anchors that GitHub gives them.
myst_enable_extensions = ["attrs_inline", "colon_fence", "deflist", "dollarmath"]
myst_heading_anchors = 4

# The reference. Names in single backticks lead to where they are described.
default_role = "py:obj"
autosummary_generate = True
autodoc_typehints = "none"  # numpydoc writes the types of the docstrings
autodoc_inherit_docstrings = True
numpydoc_show_class_members = False

# Where names of other packages are described. `make docs` needs no network: without it, names of
# others have no links.
intersphinx_mapping = {
    "pymc": ("https://www.pymc.io/projects/docs/en/stable/", None),
    "arviz_base": ("https://python.arviz.org/projects/base/en/stable/", None),
    "arviz_plots": ("https://python.arviz.org/projects/plots/en/stable/", None),
    "arviz_stats": ("https://python.arviz.org/projects/stats/en/stable/", None),
    "xarray": ("https://docs.xarray.dev/en/stable/", None),
}
intersphinx_timeout = 5  # seconds

# Formulas
html_math_renderer = "mathml"

# Code blocks are copied without prompts and output.
copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True

# Scripts in examples/gallery. `make gallery` and `make site` run those that have changed. `make
# docs` shows what the last run wrote, and the code alone where a script has changed since.
sphinx_gallery_conf = {
    "examples_dirs": "../examples/gallery",
    "gallery_dirs": "gallery",
    "filename_pattern": r"\.py$",
    "plot_gallery": os.environ.get("GALLERY") == "run",
    "parallel": 2,  # pages at a time
    "abort_on_example_error": True,
    "backreferences_dir": "reference/backreferences",
    "doc_module": ("pymc_coresets",),
    "inspect_global_variables": False,
    "download_all_examples": False,
    "min_reported_time": 0,
    "write_computation_times": False,  # these pages load scripts from elsewhere
    "show_memory": False,
    "show_signature": False,
    "default_thumb_file": str(HERE / "figures/how_rounds_light.png"),
    "remove_config_comments": True,
    "within_subsection_order": "FileNameSortKey",
    "image_srcset": ["2x"],
    "capture_repr": ("_repr_html_", "__repr__"),
}

html_theme = "pydata_sphinx_theme"
html_title = "pymc_coresets"
html_logo = "_static/logo.svg"
html_favicon = "_static/logo.svg"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_show_sourcelink = False
html_context = {"default_mode": "auto"}  # light or dark, as the reader's system is
if REPOSITORY:
    owner, _, name = REPOSITORY.partition("/")
    html_context |= {
        "github_user": owner, "github_repo": name, "github_version": "main", "doc_path": "docs",
    }  # fmt: skip
html_copy_source = False
html_theme_options = {
    "logo": {"text": "pymc_coresets", "alt_text": "pymc_coresets: to the home page"},
    "header_links_before_dropdown": 4,
    "navbar_align": "left",
    "show_prev_next": True,
    "show_toc_level": 2,
    "secondary_sidebar_items": [
        "page-toc",
        *(["edit-this-page", "sourcelink"] if REPOSITORY else []),
    ],
    "use_edit_page_button": bool(REPOSITORY),
    "footer_start": ["copyright"],
    "footer_end": ["version"],
    "pygments_light_style": "a11y-high-contrast-light",
    "pygments_dark_style": "a11y-high-contrast-dark",
    "back_to_top_button": False,
}
# Pages without pages below or beside them have no sidebar.
_ALONE = (
    "index", "get-started", "choosing", "cheat-sheet", "how-it-works", "troubleshooting",
    "glossary", "changelog", "citing",
)  # fmt: skip
html_sidebars: dict[str, list[str]] = {page: [] for page in _ALONE}
