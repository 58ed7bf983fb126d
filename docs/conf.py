"""The settings of Sphinx; the pages that it reads are written by ``python -m docs``."""

import shutil
import sys
from pathlib import Path

import plotly
import ziamath
from sphinx.application import Sphinx
from sphinx.config import Config

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent))

from attnlab.figures.theme import auto_css  # noqa: E402
from docs.places import HOME  # noqa: E402

project = "attnlab"
extensions = ["myst_parser", "docs.extension"]
myst_enable_extensions = ["attrs_block", "attrs_inline", "colon_fence", "deflist", "dollarmath"]
myst_dmath_double_inline = True
myst_heading_anchors = 3
myst_links_external_new_tab = False
suppress_warnings = ["misc.highlighting_failure", "myst.header", "myst.xref_missing"]
exclude_patterns = ["_*"]
html_math_renderer = "mathml"
html_theme = "furo"
html_title = "attnlab"
html_favicon = "icon.svg"
html_css_files = ["figures.css", "site.css"]
html_js_files = ["descriptions.js", "site.js"]
html_copy_source = False
html_show_sphinx = False
html_show_copyright = False
html_search_scorer = str(HERE / "scorer.js")
html_show_search_summary = False  # it would fetch pages, which a page on disk may not
html_permalinks_icon = "#"
pygments_style = "friendly"
pygments_dark_style = "github-dark"
python_use_unqualified_type_names = True
add_module_names = False
toc_object_entries_show_parents = "hide"
html_theme_options = {
    "sidebar_hide_name": False,
    "source_repository": f"https://github.com/{HOME.slug}/",
    "source_branch": HOME.branch,
    "top_of_page_buttons": [],
    "light_css_variables": {
        "color-brand-primary": "#0b5c8f",
        "color-brand-content": "#0b5c8f",
        "color-api-name": "#0b5c8f",
        "color-api-pre-name": "#57606b",
    },
    "dark_css_variables": {
        "color-brand-primary": "#8cc4ea",
        "color-brand-content": "#8cc4ea",
        "color-api-name": "#8cc4ea",
        "color-api-pre-name": "#a3adb8",
    },
}


def _folders(app: Sphinx, config: Config) -> None:
    """What lies beside the pages that were written: copied files, and what every page uses."""
    sources = Path(app.srcdir)
    config.html_extra_path = [str(sources / "_extra")]
    config.html_static_path = [str(sources / "_static")]
    _gather(sources / "_static")


def _gather(static: Path) -> None:
    """The library of the figures and a font with mathematical signs come from packages."""
    static.mkdir(exist_ok=True)
    package = Path(plotly.__file__).parent / "package_data"
    shutil.copy(package / "plotly.min.js", static)
    shutil.copy(Path(ziamath.__file__).parent / "fonts/STIXTwoMath-Regular.ttf", static)
    (static / "figures.css").write_text(auto_css(), encoding="utf-8")
    for name in ("site.css", "site.js"):
        shutil.copy(HERE / name, static)


def setup(app: Sphinx) -> None:
    app.connect("config-inited", _folders)
