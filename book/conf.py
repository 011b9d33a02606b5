"""Sphinx's settings for the book; book/build.py writes the pages that it reads."""

project = "Bytes First"
extensions = ["myst_parser"]
exclude_patterns = []
html_theme = "sphinx_book_theme"
html_title = "Bytes First"
html_static_path = ["_static"]
html_extra_path = ["_extra"]
html_css_files = ["book.css"]
html_js_files = [("panels.js", {"defer": "defer"})]
html_copy_source = False
html_show_sourcelink = False
html_permalinks_icon = "#"
html_theme_options = {
    "show_navbar_depth": 1,
    "show_toc_level": 2,
    "use_download_button": False,
    "use_fullscreen_button": False,
}
myst_enable_extensions = ["colon_fence"]
myst_heading_anchors = 4
suppress_warnings = ["myst.header", "misc.highlighting_failure"]
