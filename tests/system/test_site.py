"""The web site: whole, with links that lead somewhere, nothing from other hosts, and good to read in a real browser.

It is built once, as `make site` builds it, but into a temporary folder.
"""

import functools
import http.server
import os
import re
import shlex
import subprocess
import sys
import threading
from pathlib import Path
from urllib.parse import unquote, urlencode, urlsplit

import nbformat
import pytest
from bs4 import BeautifulSoup
from lesson_files import NOTEBOOKS, ROOT, SOLUTIONS

from helpers import course

pytestmark = pytest.mark.timeout(1200)  # the first test builds the site, and reads all pages

SETTINGS = ROOT / "docs/site"
COMMAND = ["make", "-n", "site", "--old-file=.venv/.installed", f"RUN={shlex.quote(sys.executable)} -m"]


def sphinx_command() -> list[str]:
    """Return the words of the line in which `make site` runs sphinx."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}
    plan = subprocess.run(COMMAND, cwd=ROOT, env=environment, capture_output=True, text=True, check=True).stdout
    (line,) = [line for line in plan.splitlines() if " sphinx " in line]
    return shlex.split(line)


def build(tree: Path, target: Path) -> subprocess.CompletedProcess:
    """Build the site of a tree into this folder, in another process: what its libraries warn of is not for pytest."""
    folders = {"build/site": target / "site", "build/doctrees": target / "doctrees", "docs/site": SETTINGS}
    words = [folders.get(word, word) for word in sphinx_command()]
    return subprocess.run(words, cwd=tree, capture_output=True, text=True, timeout=900)


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    folder = tmp_path_factory.mktemp("site")
    result = build(ROOT, folder)
    assert result.returncode == 0, result.stderr
    assert result.stderr == ""
    return folder / "site"


@pytest.fixture(scope="module")
def pages(site):
    """The pages by their path in the site."""
    paths = sorted(site.rglob("*.html"))
    return {str(path.relative_to(site)): soup(path) for path in paths}


def soup(path: Path) -> BeautifulSoup:
    return BeautifulSoup(path.read_text(), "html.parser")


def page_of(path: Path) -> str:
    return str(path.relative_to(ROOT).with_suffix(".html"))


# ---------------------------------------------------------------- what is there


def test_every_file_has_its_page(pages):
    documents = [*ROOT.glob("*.md"), *ROOT.glob("docs/*.md")]
    expected = {page_of(path) for path in [*NOTEBOOKS, *SOLUTIONS, *documents]}
    assert set(pages) == expected | {"index.html", "search.html"}


def test_the_bar_at_the_side_lists_the_parts_of_the_course(pages):
    bar = pages["index.html"].select_one(".sidebar-tree")
    captions = [caption.get_text() for caption in bar.select(".caption")]
    assert captions == ["Start here", *course.parts(), "More documentation"]
    half_an_hour, install, *entries = [link["href"] for link in bar.select(".toctree-l1 > a")]
    assert (half_an_hour, install) == ("docs/half_an_hour.html", "docs/install.html")
    lessons, documents = entries[: len(NOTEBOOKS)], entries[len(NOTEBOOKS) :]
    assert lessons == [page_of(path) for path in NOTEBOOKS]  # every lesson once, in its place
    assert {"docs/teaching.html", "docs/classroom.html", "docs/clusters.html"} < set(documents)


@pytest.mark.parametrize("lesson", course.lessons().values(), ids=course.lessons())
def test_a_lesson_leads_to_the_next_lesson(pages, lesson):
    page = pages[f"notebooks/{lesson.name}.html"]
    names = list(course.lessons())
    place = names.index(lesson.name)
    for link, neighbour in [("prev-page", names[place - 1 : place]), ("next-page", names[place + 1 : place + 2])]:
        assert [found["href"] for found in page.select(f"a.{link}")] == [f"{name}.html" for name in neighbour]
    assert page.h1.find(string=True) == lesson.numbered_title
    assert lesson.promise in description(page)


def description(page):
    return page.find("meta", attrs={"name": "description"})["content"]


def test_each_document_describes_itself_to_search_engines(pages):
    documents = {name: description(page) for name, page in pages.items() if name.startswith("docs/")}
    assert len(set(documents.values())) == len(documents)
    assert documents["docs/errors.html"].startswith("Each heading is part of an error message")


def test_the_first_page_says_how_to_begin(pages):
    page = pages["index.html"].select_one("article")
    assert page.find("a", string="Start with 00 Meet the ranks")["href"] == "notebooks/00_meet_the_ranks.html"
    assert "git clone https://" in page.find("pre").text and "make lab" in page.find("pre").text


@pytest.mark.parametrize("path", NOTEBOOKS + SOLUTIONS, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_a_page_shows_what_is_stored(pages, site, path):
    page = pages[page_of(path)].select_one("article")
    shown = "".join(page.get_text().split())
    cells = [cell for cell in nbformat.read(path, as_version=4).cells if cell.cell_type == "code"]
    outputs = [output for cell in cells for output in cell.outputs]
    for text in [cell.source for cell in cells] + [output.text for output in outputs if "text" in output]:
        if "\x1b" not in text:  # colours become markup
            assert "".join(text.split()) in shown, text
    images = page.select(".cell_output img")
    assert len(images) == sum("image/png" in output.get("data", {}) for output in outputs)
    for image in images:
        assert (site / page_of(path)).parent.joinpath(image["src"]).read_bytes().startswith(b"\x89PNG")
        assert len(image["alt"].split()) > 5  # its caption


def test_formulas_are_mathml(pages):
    page = pages["notebooks/07_what_all_reduce_costs.html"]
    assert page.select('math[display="block"]') and page.select('math[display="inline"]')
    assert not re.search(r"\$.+\$|\\frac", page.select_one("article").get_text())


def test_solutions_are_folded(pages):
    for path in SOLUTIONS:
        page = pages[page_of(path)]
        sections = page.select("article section section")
        assert sections, f"{path.name} has no headings"
        for section in sections:
            heading, answer = [child for child in section.find_all(recursive=False) if child.name != "span"]
            assert answer.name == "details" and not answer.has_attr("open"), heading
            assert answer.select(".cell_input"), heading


def test_folded_cells_of_lessons_say_what_they_contain(pages):
    page = pages["notebooks/06_ring_all_reduce.html"]
    prompts = {
        "def ring_of_the_lesson(tensor)": "Show the lesson's own code",
        "assert whole.sum() == naive.sum()": "Show the asserts",
    }
    for code, prompt in prompts.items():
        (cell,) = [cell for cell in page.select(".cell_input") if code in cell.get_text()]
        details = cell.find_parent("details")
        assert not details.has_attr("open")
        assert prompt in details.select_one("summary").get_text()


# ---------------------------------------------------------------- links


def test_every_link_leads_somewhere(pages, site):
    anchors = {name: {tag["id"] for tag in page.find_all(id=True)} for name, page in pages.items()}
    lost = []
    for name, page in pages.items():
        for element, attribute in [("a", "href"), ("img", "src"), ("link", "href"), ("script", "src")]:
            for link in [tag[attribute] for tag in page.find_all(element, attrs={attribute: True})]:
                parts = urlsplit(link)
                if parts.scheme or parts.netloc:
                    continue
                target = (site / name).parent / unquote(parts.path) if parts.path else site / name
                target = target.resolve()
                if not target.is_file():
                    lost.append(f"{name}: {link}")
                elif parts.fragment and target.suffix == ".html":
                    if unquote(parts.fragment) not in anchors[str(target.relative_to(site.resolve()))]:
                        lost.append(f"{name}: {link}")
    assert lost == []


def test_the_sources_link_each_section_that_they_name(pages):
    sections = pages["docs/sources.html"].select("table td:nth-of-type(2) em")
    assert sections and all(section.find_parent("a", href=re.compile("#")) for section in sections)


def test_links_between_notebooks_are_links_between_pages(pages):
    followed = 0
    for path in NOTEBOOKS:
        cells = [cell.source for cell in nbformat.read(path, as_version=4).cells if cell.cell_type == "markdown"]
        hrefs = {link["href"].partition("#")[0] for link in pages[page_of(path)].select("article a[href]")}
        for name in re.findall(r"\]\((\w+)\.ipynb", "\n".join(cells)):
            assert f"{name}.html" in hrefs
            followed += 1
    assert followed > len(NOTEBOOKS)


LESSON = "# A lesson\n\n## The ring's two indices\n\nText."


def small_tree(folder: Path, *links: str) -> Path:
    """Make a course of two lessons, the first of which has these links."""
    (folder / "notebooks/solutions").mkdir(parents=True)
    (folder / "docs").mkdir()
    (folder / "docs/install.md").write_text("# Install\n")
    (folder / "README.md").write_text("# A course\n\n[Install](docs/install.md)\n")
    row = '[[lesson]]\nname = "{}"\ntitle = "T"\npart = "P"\npromise = ""\nranks = 4\nothers = []\nneeds = []\n'
    (folder / "notebooks/course.toml").write_text(row.format("00_a") + row.format("01_b"))
    first = "\n\n".join(["# The first", *(f"[next]({link})" for link in links)])
    for name, source in [("00_a", first), ("01_b", LESSON)]:
        for path in [f"notebooks/{name}.ipynb", f"notebooks/solutions/{name}.ipynb"]:
            text = source if "solutions" not in path else "# Solutions\n\n## One\n\nText."
            notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_markdown_cell(text)])
            nbformat.write(notebook, folder / path)
    return folder


def test_a_link_to_a_heading(tmp_path):
    tree = small_tree(tmp_path / "tree", "01_b.ipynb#The-ring's-two-indices")  # as JupyterLab writes it
    result = build(tree, tmp_path / "built")
    assert result.returncode == 0, result.stderr
    first, second = [soup(tmp_path / f"built/site/notebooks/{name}.html") for name in ["00_a", "01_b"]]
    (href,) = [link["href"] for link in first.select("article a") if link.text == "next"]
    file, _, anchor = href.partition("#")
    assert file == "01_b.html"
    assert second.find(id=anchor).find("h2").get_text().startswith("The ring’s two indices")


def test_a_link_that_leads_nowhere_is_an_error(tmp_path):
    links = ["02_c.ipynb", "01_b.ipynb#The-ring", "../helpers/nothing.py"]
    result = build(small_tree(tmp_path / "tree", *links), tmp_path / "built")
    assert result.returncode != 0
    said = [line for line in result.stderr.splitlines() if "00_a.ipynb" in line and "myst.xref_missing" in line]
    assert len(said) == len(links), result.stderr


# ---------------------------------------------------------------- nothing from other hosts


def test_nothing_is_fetched_from_another_host(pages, site):
    fetched = []
    for page in pages.values():
        fetched += [tag["src"] for tag in page.find_all(src=True)]
        fetched += [tag["srcset"] for tag in page.find_all(srcset=True)]
        fetched += [tag["href"] for tag in page.find_all("link")]
    for sheet in site.rglob("*.css"):
        fetched += re.findall(r"""(?:url\(|@import)\s*["']?([^"')\s]+)""", sheet.read_text())
    assert fetched
    assert [place for place in fetched if re.match(r"(?!data:)(\w+:)?//", place)] == []


# ---------------------------------------------------------------- in a browser


@pytest.fixture(scope="module")
def address(site):
    """The address of a server that serves the site on this machine."""

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *_):
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=site)) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()
        thread.join()


@pytest.fixture
def reader(browser, address):
    """Return a function that opens a page; all that any page asks for has to come from the site, and to be there."""
    contexts, faults = [], []

    def look_at(answer):
        if answer.status >= 400 or not answer.url.startswith((address, "data:")):
            faults.append(answer.url)

    def look_after(request):
        if "ERR_ABORTED" not in (request.failure or ""):  # that of a page that was left before it came
            faults.append(f"{request.url}: {request.failure}")

    def open_page(path, **options):
        contexts.append(browser.new_context(**options))
        page = contexts[-1].new_page()
        page.on("response", look_at)
        page.on("requestfailed", look_after)
        page.on("pageerror", lambda error: faults.append(str(error)))
        page.goto(address + path)
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert faults == []


def test_search_finds_a_word(reader):
    page = reader("index.html")
    page.get_by_role("textbox", name="Search").first.fill("storyboard")
    page.keyboard.press("Enter")
    result = page.locator("#search-results a").first
    result.wait_for(timeout=20_000)
    result.click()
    page.wait_for_url("**/notebooks/*", wait_until="domcontentloaded")
    assert "storyboard" in page.locator("article").inner_text()


def test_search_has_titles_first_and_solutions_last(reader):
    page = reader("search.html?q=uneven")
    page.get_by_role("link", name="Solutions: uneven ranks").wait_for(timeout=20_000)
    pages = page.locator("#search-results li > a").all_inner_texts()
    assert pages[0] == "13 Uneven ranks" and pages[-1].startswith("Solutions")


def test_search_leads_from_part_of_an_error_message_to_its_section(reader):
    page = reader("search.html?q=Timed+out+waiting")
    result = page.locator("#search-results a").first
    result.wait_for(timeout=20_000)
    assert result.inner_text().startswith("Errors and what they mean > Timed out waiting")
    result.click()
    page.wait_for_url("**/docs/errors.html#timed-out-waiting-*", wait_until="domcontentloaded")
    assert "waited for another rank" in page.locator("section:target").inner_text()


PASTED = "[rank1]: RuntimeError: [/pytorch/gloo/transport/tcp/unbound_buffer.cc:81] "
PASTED += "Timed out waiting 1800000ms for send operation to complete"


def test_search_finds_the_message_in_a_pasted_line(reader):
    page = reader("search.html?" + urlencode({"q": PASTED}))
    result = page.locator("#search-results a").first
    result.wait_for(timeout=20_000)
    assert result.inner_text().startswith("Errors and what they mean > Timed out waiting")


def test_a_page_opens_at_the_row_that_has_the_words(reader):
    page = reader("search.html?q=fewer+batches")
    page.locator("#search-results a").first.click(timeout=20_000)
    row = page.locator("tr", has_text="fewer batches").first
    row.locator(".highlighted").first.wait_for()
    page.wait_for_function("row => row.getBoundingClientRect().bottom < window.innerHeight", arg=row.element_handle())
    assert page.evaluate("window.scrollY") > 0


def test_search_has_the_list_of_questions_before_lessons_that_only_have_the_words(reader):
    page = reader("search.html?q=fewer+batches")
    result = page.locator("#search-results a").first
    result.wait_for(timeout=20_000)
    assert result.get_attribute("href") == "docs/questions.html"


def test_a_figure_opens_in_its_own_size(reader):
    page = reader("notebooks/06_ring_all_reduce.html")
    figure = page.locator(".cell_output a img").first
    width = figure.evaluate("image => image.naturalWidth")
    figure.click()
    page.wait_for_url("**/_images/*.png")
    assert page.locator("img").evaluate("image => image.naturalWidth") == width


def test_a_solution_unfolds(reader):
    page = reader("notebooks/06_ring_all_reduce.html")
    page.locator("article").get_by_role("link", name="solutions").click()
    page.wait_for_url("**/notebooks/solutions/06_ring_all_reduce.html")
    answer = page.get_by_text("def reduce_scatter(tensor)")
    assert not answer.is_visible()
    page.locator("details", has=answer).locator("summary").click()
    assert answer.is_visible()


def brightness(page):
    """Return how bright the ground of a page is, and its letters, from 0 to 255."""
    colours = page.evaluate("[getComputedStyle(document.body).backgroundColor, getComputedStyle(document.body).color]")
    return [sum(map(int, re.findall(r"\d+", colour)[:3])) / 3 for colour in colours]


def test_light_and_dark(reader):
    for scheme in ["light", "dark"]:
        page = reader("notebooks/06_ring_all_reduce.html", color_scheme=scheme)
        ground, letters = brightness(page)
        assert abs(ground - letters) > 120
        assert (ground > letters) == (scheme == "light")  # as the system has it
        page.locator(".theme-toggle").locator("visible=true").first.click()
        chosen_ground, chosen_letters = brightness(page)
        assert (chosen_ground > chosen_letters) == (scheme == "dark")  # the button takes the other one


@pytest.mark.parametrize("width", [1280, 360], ids=["desk", "phone"])
def test_figures_are_sharp_and_keep_their_proportions(reader, width):
    page = reader("notebooks/07_what_all_reduce_costs.html", viewport={"width": width, "height": 740})
    figures = page.locator(".cell_output img").evaluate_all(
        "images => images.map(image => [image.naturalWidth / image.width, image.naturalHeight / image.height])"
    )
    assert len(figures) == 5
    for across, down in figures:
        assert across > 1.99 and across == pytest.approx(down, rel=0.01)


def test_a_phone_scrolls_down_only(reader, pages):
    page = reader("index.html", viewport={"width": 360, "height": 740}, is_mobile=True, has_touch=True)
    address = page.url.removesuffix("index.html")
    too_wide = []
    for name in pages:
        page.goto(address + name)
        if page.evaluate("document.documentElement.scrollWidth") > 360:
            too_wide.append(name)
    assert too_wide == []
    assert page.evaluate("parseFloat(getComputedStyle(document.body).fontSize)") >= 14  # letters are not made small


def test_a_phone_squeezes_no_column_of_words(reader):
    page = reader("index.html", viewport={"width": 390, "height": 844}, is_mobile=True, has_touch=True)
    promise = page.locator("article td:nth-child(2)").first
    assert promise.evaluate("cell => cell.clientWidth") > 170  # three words or more
