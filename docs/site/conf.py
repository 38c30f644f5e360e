"""How `make site` turns README.md, docs/ and the stored notebooks into pages. Nothing is executed.

The order of the lessons is that of notebooks/course.toml, and no page fetches anything from another host.
"""

import html
import json
import re
import shutil
from pathlib import Path
from urllib.parse import quote, unquote

from docutils import nodes
from ipython_pygments_lexers import IPython3Lexer
from latex2mathml.converter import convert
from pygments.lexer import bygroups, using
from pygments.lexers import PythonLexer
from pygments.token import Operator, Text

from helpers import course

ROOT = Path(__file__).resolve().parents[2]

project = "torch.distributed, live"
language = "en"
extensions = ["myst_nb", "sphinx.ext.githubpages"]
root_doc = "README"
include_patterns = ["*.md", "docs/*.md", "notebooks/[0-9]*.ipynb", "notebooks/solutions/*.ipynb"]
exclude_patterns = [".*", "build", "**/.*"]

nb_execution_mode = "off"
nb_ipywidgets_js = {}  # they would come from another host; a slider shows its words instead
myst_enable_extensions = ["dollarmath"]
myst_heading_anchors = 6

# The pages that the bar at the side lists above the lessons.
START_HERE = {"docs/half_an_hour", "docs/install"}

# Tags of cells that a notebook shows folded, each with what the cell contains.
FOLDED = {"solution": "the lesson's own code", "proof": "the asserts"}

# The caption of a figure is the paragraph in italics below it.
CAPTION = re.compile(r"^\*(?:The )?figures?\b:? ?(.*?)\*$", re.I | re.M | re.S)

html_theme = "furo"
html_title = project
html_static_path = ["site.css", "figures.js", "found.js"]
html_css_files = ["site.css"]
html_js_files = ["figures.js", "found.js"]
html_search_scorer = str(ROOT / "docs/site/search.js")
html_favicon = "icon.svg"  # four ranks in a ring
html_math_renderer = "mathml"
html_copy_source = False
html_show_copyright = False
html_domain_indices = False
html_use_index = False


# ---------------------------------------------------------------- what a page has beyond its file


def contents(entries: list[str], options: str = "") -> str:
    """Return a table of contents, which only the bar at the side shows."""
    return "\n".join(["\n\n```{toctree}", ":hidden:", options, "", *entries, "```\n"])


def with_start(readme: str, first: course.Lesson) -> str:
    """Add below the front page's first paragraph how to begin; CITATION.cff has the address of the repository."""
    address = re.search(r'repository-code: "(.+)"', (ROOT / "CITATION.cff").read_text())[1]
    link = f"[Start with {first.numbered_title}](notebooks/{first.name}.ipynb)"
    commands = f"```\ngit clone {address} course\ncd course\nmake lab\n```"
    paragraphs = readme.split("\n\n")
    paragraphs[2:2] = [f"**{link}**, which you can read here, or run the course on your machine:", commands]
    return "\n\n".join(paragraphs)


def with_unbroken_ranks(readme: str) -> str:
    """Keep the last column of the table of lessons, such as `4 (2 to 8)`, on one line."""
    ranks = re.compile(r"\d \([\dto, ]+\)(?= \|$)", re.M)
    return ranks.sub(lambda found: found[0].replace(" ", "\N{NO-BREAK SPACE}"), readme)


def with_contents(readme: str, table: Path) -> str:
    """Add all pages to the front page's text; the lessons are those of the table."""
    pages = dict.fromkeys(re.findall(r"\]\(([\w/]+)\.md\)", readme))
    first = [page for page in pages if page in START_HERE]
    readme += contents(first, ":caption: Start here")
    for part, lessons in course.parts(table).items():
        entries = [f"{lesson.numbered_title} <notebooks/{lesson.name}>" for lesson in lessons]
        readme += contents(entries, f":caption: {part}")
    return readme + contents([page for page in pages if page not in first], ":caption: More documentation")


def with_solutions(notebook: dict, name: str) -> None:
    """Have a lesson say what its page shows, and lead to its solutions."""
    opening = f"*This page shows the notebook `{name}.ipynb` as it is stored, with its outputs. To run it on ranks of "
    opening += "your own, [install the course](../docs/install.md).*"
    ending = f"The exercises have [solutions](solutions/{name}.ipynb)."
    ending += contents([f"Solutions <solutions/{name}>"])
    notebook["cells"].insert(1, markdown_cell("site-opening", opening))
    notebook["cells"].append(markdown_cell("site-ending", ending))


def with_folds(notebook: dict) -> None:
    """Fold what would answer a question before it is asked: the course's own versions, proofs, and what follows it.

    A lesson asks in bold. What its cells have printed, up to the next text, answers.
    """
    asked = False
    for cell in notebook["cells"]:
        tags = cell["metadata"].get("tags", [])
        if cell["cell_type"] == "markdown":
            asked = re.search(r"\*\*[^*]*\?[^*]*\*\*", "".join(cell["source"])) is not None
        elif folded := FOLDED.keys() & set(tags):
            cell["metadata"]["tags"] = [*tags, "hide-cell" if asked else "hide-input"]
            content = FOLDED[folded.pop()]
            cell["metadata"]["mystnb"] = {
                "code_prompt_show": f"Show {content}",
                "code_prompt_hide": f"Hide {content}",
            }
        elif asked:
            cell["metadata"]["tags"] = [*tags, "hide-output"]


def with_alternatives(notebook: dict) -> None:
    """Describe each figure by its caption, for readers who cannot see it."""
    cells = notebook["cells"]
    for cell, below in zip(cells, cells[1:], strict=False):
        if caption := CAPTION.search("".join(below["source"])):
            words = re.sub(r"[`*]", "", " ".join(caption[1].split()))
            alternative = {"image": {"alt": words[:1].upper() + words[1:]}}
            cell["metadata"]["mystnb"] = cell["metadata"].get("mystnb", {}) | alternative


def markdown_cell(name: str, source: str) -> dict:
    """Return a cell as a notebook stores it."""
    return {"id": name, "cell_type": "markdown", "metadata": {}, "source": source}


def with_slugs(source: str) -> str:
    """Write the anchors of links to notebooks as pages have them: JupyterLab writes `#The-ring`, a page `#the-ring`."""
    return re.sub(r"(?<=\.ipynb#)[^)\s]+", lambda anchor: re.sub(r"[^\w-]", "", unquote(anchor[0]).lower()), source)


def with_sections(text: str) -> str:
    """Link each section of docs/sources.md, whose file links only the lesson: `[lesson], *section*, *section*`."""
    places = dict(re.findall(r"^\[(.+)\]: (\S+)$", text, re.M))

    def linked(match):
        lesson, sections = match.groups()
        links = [f"[*{section}*]({places[lesson]}#{quote(section.replace(' ', '-'))})" for section in names(sections)]
        return ", ".join([f"[{lesson}]", *links])

    names = re.compile(r"\*([^*]+)\*").findall
    return re.sub(r"\[([^\]]+)\]((?:, \*[^*]+\*)+)", linked, text)


def lesson_of(app, docname: str) -> course.Lesson | None:
    """Return the lesson that a page shows, and None for all other pages, solutions among them."""
    folder, _, name = docname.rpartition("/")
    return lessons(app).get(name) if folder == "notebooks" else None


def lessons(app) -> dict[str, course.Lesson]:
    """Return the lessons of the tree that is built."""
    return course.lessons(Path(app.srcdir) / "notebooks/course.toml")


def prepare(app, docname: str, source: list[str]) -> None:
    """Add to a file, before it is read, what only the site needs."""
    if docname == root_doc:
        first, *_ = lessons(app).values()
        readme = with_unbroken_ranks(with_start(source[0], first))
        source[0] = with_contents(readme, Path(app.srcdir) / "notebooks/course.toml")
    elif docname.startswith("docs/"):
        text = with_sections(source[0]) if docname == "docs/sources" else source[0]
        source[0] = with_slugs(text)
    elif docname.startswith("notebooks/"):
        notebook = json.loads(source[0])
        for cell in notebook["cells"]:
            if cell["cell_type"] == "markdown":
                cell["source"] = with_slugs("".join(cell["source"]))
        if lesson := lesson_of(app, docname):
            opening = notebook["cells"][0]
            opening["source"] = re.sub(r"\A# .*", f"# {lesson.numbered_title}", opening["source"])
            with_folds(notebook)
            with_alternatives(notebook)
            with_solutions(notebook, lesson.name)
        source[0] = json.dumps(notebook)


def fold(app, page: nodes.document) -> None:
    """Fold what stands below each heading of a solution."""
    if not app.env.docname.startswith("notebooks/solutions/"):
        return
    for section in page.findall(nodes.section):
        if isinstance(section.parent, nodes.section):
            section.insert(1, nodes.raw("", "<details><summary>Show the solution</summary>", format="html"))
            section.append(nodes.raw("", "</details>", format="html"))


# ---------------------------------------------------------------- what leads to a page


def lead(app, docname: str, template: str, context: dict, page) -> None:
    """Have a lesson lead to the lessons before and after it, and each page tell search engines what it is about."""
    about = "A course on torch.distributed in Jupyter notebooks, with ranks that you start, watch, break and repair."
    if docname.startswith("docs/"):
        first = next(page.findall(nodes.paragraph), None)  # a document may be a heading only
        about = " ".join(first.astext().split()) if first else about
    elif lesson := lesson_of(app, docname):
        about = f"A lesson in a Jupyter notebook, with live ranks. Afterwards you can {lesson.promise}."
        names = list(lessons(app))
        place = names.index(lesson.name)
        context["prev"] = neighbour(app, docname, names[place - 1 : place])
        context["next"] = neighbour(app, docname, names[place + 1 : place + 2])
    description = f'<meta name="description" content="{html.escape(about)}" />'
    context["metatags"] = context.get("metatags", "") + description  # the search page has no tags yet


def neighbour(app, docname: str, names: list[str]) -> dict | None:
    """Return the link to the lesson with the only name of a list, and None if there is no name."""
    if not names:
        return None
    link = app.builder.get_relative_uri(docname, f"notebooks/{names[0]}")
    return {"link": link, "title": lessons(app)[names[0]].numbered_title}


# ---------------------------------------------------------------- code, formulas, and the first page


class CellLexer(IPython3Lexer):
    """Colours a cell for the ranks as what it is: Python, below its first line."""

    name = "a cell"
    ranks = (r"(?s)(%%px)([^\n]*\n)(.*)", bygroups(Operator, Text, using(PythonLexer)))
    tokens = IPython3Lexer.tokens | {"root": [ranks, *IPython3Lexer.tokens["root"]]}


def formula(translator, node) -> None:
    """Write a formula as MathML, which browsers draw by themselves."""
    display = "block" if isinstance(node, nodes.math_block) else "inline"
    translator.body.append(convert(node.astext(), display=display))
    raise nodes.SkipNode


def front_page(app, error) -> None:
    """Make README.html what a browser finds when it is given the folder only."""
    if error is None:
        shutil.copy(app.outdir / "README.html", app.outdir / "index.html")


def setup(app) -> None:
    """Connect all of this to the events of the build."""
    app.connect("source-read", prepare)
    app.connect("doctree-read", fold)
    app.connect("html-page-context", lead)
    app.connect("build-finished", front_page)
    app.add_lexer("ipython3", CellLexer)
    app.add_html_math_renderer("mathml", inline_renderers=(formula, None), block_renderers=(formula, None))
