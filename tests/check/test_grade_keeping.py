"""A verdict that was kept holds for one version of the course, of which the table of lessons is a part."""

import shutil

import pytest

from helpers import course
from helpers.grade import keeping

LESSON = "06_ring_all_reduce.ipynb"


@pytest.fixture
def version_of(tmp_path, monkeypatch):
    """Return a function that gives the version of a small course, whose table of lessons has a text at its end."""
    (tmp_path / "notebooks").mkdir()
    monkeypatch.setattr(keeping, "ROOT", tmp_path)
    monkeypatch.setattr(keeping, "NOTEBOOKS", tmp_path / "notebooks")

    def version(added=""):
        table = shutil.copy(course.TABLE, tmp_path / "notebooks")
        with open(table, "a", encoding="utf-8") as file:
            file.write(added)
        keeping._version_of_the_course.cache_clear()
        return keeping._version(LESSON, b"an answer")

    yield version
    keeping._version_of_the_course.cache_clear()


def test_a_change_of_the_table_of_lessons_asks_for_a_new_verdict(version_of):
    assert version_of() == version_of()
    assert version_of("# others = [2, 3]\n") != version_of()
