"""The ways to the course that cannot be tried here: what their files name is there, and is what they say.

These are the workflows, the containers, and the link for nbgitpuller. Neither a workflow nor a container runs here.
"""

import json
import re
from urllib.parse import parse_qs, urlsplit

import pytest
import yaml
from lesson_files import ROOT

TARGETS = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.M)) | {".venv/.installed"}
WORKFLOWS = sorted(ROOT.glob(".github/workflows/*.yml"))
CONTAINERS = sorted(ROOT.glob(".devcontainer/**/devcontainer.json"))


def assert_known(command: str) -> None:
    """Fail when a command names a target of make or a file that is not there."""
    for target in re.findall(r"\bmake (\S+)", command):
        assert target in TARGETS, command
    for path in re.findall(r"(?<!\S)((?:\.ci|tests|docs|notebooks|helpers)/\S+)", command):
        assert (ROOT / path).exists(), command


@pytest.mark.parametrize("command", ["make sites", "python -m pytest tests/test_nothing.py", ".ci/go"])
def test_a_command_that_is_not_there_is_found(command):
    with pytest.raises(AssertionError):
        assert_known(command)


def jobs(path):
    return yaml.safe_load(path.read_text())["jobs"]


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_a_workflow_names_what_is_there(path):
    workflow = yaml.safe_load(path.read_text())
    assert set(workflow) - {"env"} == {"name", True, "permissions", "concurrency", "jobs"}  # YAML reads `on` as true
    assert workflow["permissions"] == {"contents": "read"}
    for job in workflow["jobs"].values():
        assert job["timeout-minutes"] < 360  # where the system would end it without a word
        assert job["runs-on"] and set(job.get("needs", "").split()) <= set(workflow["jobs"])
        for step in job["steps"]:
            assert ("uses" in step) != ("run" in step)
            assert re.fullmatch(r"actions/[a-z-]+@[0-9a-f]{40}", step.get("uses", f"actions/none@{'0' * 40}"))
            assert_known(step.get("run", ""))
            for name in re.findall(r"matrix\.(\w+)", str(step)):
                assert all(name in entry for entry in job["strategy"]["matrix"]["include"])


def test_the_workflows_do_what_they_are_for():
    site, tests, nightly = [jobs(ROOT / f".github/workflows/{name}.yml") for name in ["site", "tests", "nightly"]]
    runs = [step.get("run") for step in site["build"]["steps"]]
    assert runs.index("make site") < runs.index(".venv/bin/python -m pytest tests/system/test_site.py")
    (upload,) = [step for step in site["build"]["steps"] if "pages-artifact" in step.get("uses", "")]
    assert upload["with"]["path"] == "build/site" and site["publish"]["needs"] == "build"

    pyproject = (ROOT / "pyproject.toml").read_text()
    oldest_python, oldest_torch = re.search(r">=(3\.\d+)", pyproject)[1], re.search(r'"torch>=([\d.]+)"', pyproject)[1]
    tried = {tuple(entry.values()) for entry in nightly["others"]["strategy"]["matrix"]["include"]}
    versions = [(oldest_python, f"torch=={oldest_torch}.*"), ("3.x", "torch")]
    assert tried == {(system, *pair) for system in ["ubuntu-latest", "macos-latest"] for pair in versions}

    last_steps = [job["steps"][-1]["run"] for job in [*tests.values(), nightly["everything"], nightly["canaries"]]]
    assert last_steps == ["make types", ".ci/run", ".ci/run", "make canaries"]
    assert nightly["everything"]["env"]["ALL"] == "1" and nightly["canaries"]["continue-on-error"]


def test_there_are_containers_and_workflows():
    assert len(WORKFLOWS) == 3 and len(CONTAINERS) == 2


@pytest.mark.parametrize("path", CONTAINERS, ids=lambda path: path.parent.name)
def test_a_container_names_what_is_there(path):
    container = json.loads(path.read_text())
    dockerfile = (path.parent / container["build"]["dockerfile"]).read_text()
    assert f"USER {container['remoteUser']}" in dockerfile
    assert_known(container["postCreateCommand"])
    assert ("--gpus=all" in container["runArgs"]) == (path.parent.name == "gpu")


def test_the_link_for_nbgitpuller_opens_the_first_notebook():
    (link,) = re.findall(r"^https://HUB/\S+$", (ROOT / "docs/install.md").read_text(), re.M)
    query = parse_qs(urlsplit(link).query)
    assert query["repo"] == ["https://HOST/OWNER/REPOSITORY"] and query["branch"] == ["main"]
    view, repository, notebook = re.fullmatch(r"(lab/tree)/(\w+)/(.+)", query["urlpath"][0]).groups()
    assert (view, repository) == ("lab/tree", "REPOSITORY") and (ROOT / notebook).exists()


@pytest.mark.parametrize("path", sorted([*ROOT.glob("docs/*.md"), *ROOT.glob("*.md")]), ids=lambda path: path.name)
def test_links_of_a_document_lead_somewhere(path):
    for link in re.findall(r"(?:\]\(|^\[.+\]: )([^)#\s]+)", path.read_text(), re.M):
        assert link.startswith("https://") or (path.parent / link).exists(), link


def test_a_link_to_a_section_names_it():
    for path in ROOT.glob("docs/*.md"):
        for link in re.findall(r"\[[^]]*\*[^]]+\*[^]]*\]\(([^)]+\.ipynb[^)]*)\)", path.read_text()):
            assert "#" in link, f"{path.name}: {link}"


def test_every_command_of_a_document_is_there():
    for path in [ROOT / "README.md", ROOT / "AGENTS.md", *ROOT.glob("docs/*.md")]:
        for line in re.findall(r"`(make [^`]+)`|^(make .+)$", path.read_text(), re.M):
            assert_known("".join(line).split("#")[0])


@pytest.mark.parametrize("name", ["CONTRIBUTING.md", "ARCHITECTURE.md"])
def test_commands_and_files_that_contributors_are_told_of_are_there(name):
    text = (ROOT / name).read_text()
    for quoted in re.findall(r"`((?:make|\.ci/|helpers/|tests/|docs/)[^`*{}]*)`", text):
        if "TOPIC" not in quoted:
            assert_known(quoted)
    named = re.findall(r"helpers/\w+/\w+\.py", text)
    assert named and all((ROOT / path).exists() for path in named)


def test_a_rule_of_the_makefile_needs_only_what_is_defined_above_it():
    text = (ROOT / "Makefile").read_text()
    for rule in re.finditer(r"^[\w$][^\t\n=]*:(?!=)(.*)$", text, re.M):
        for name in re.findall(r"\$\((\w+)\)", rule[1]):
            assert re.search(rf"^{name} [:?]?=", text[: rule.start()], re.M), f"{rule[0]}: {name}"


def test_the_version_is_the_same_wherever_it_is_given():
    (version,) = re.findall(r'^version = "(\S+)"$', (ROOT / "pyproject.toml").read_text(), re.M)
    assert f"\nversion: {version}\n" in (ROOT / "CITATION.cff").read_text()
    newest = re.search(r"^## (\S+) \((.+)\)$", (ROOT / "CHANGELOG.md").read_text(), re.M)
    assert newest[1] == version and re.fullmatch(r"\d{4}-\d\d-\d\d|not released", newest[2])


def test_a_hook_of_pre_commit_runs_what_is_there():
    (repository,) = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"]
    assert repository["repo"] == "local"  # so every version stands in constraints.txt only
    for hook in repository["hooks"]:
        assert hook["language"] == "system" and hook["entry"].startswith(".venv/bin/")
        assert_known(hook["entry"])
