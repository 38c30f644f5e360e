"""A warning that the course's own code causes is an error; other people's warnings are not."""

import warnings

import pytest


def warn_in(module):
    exec("import warnings; warnings.warn('this is old', DeprecationWarning)", {"__name__": module})


@pytest.mark.parametrize("module", ["helpers", "helpers.look.where"])
def test_a_warning_in_helpers_is_an_error(module):
    with pytest.raises(DeprecationWarning, match="this is old"):
        warn_in(module)


def test_a_warning_elsewhere_is_shown():
    with warnings.catch_warnings(record=True) as shown:
        warn_in("helpers_of_somebody")
    assert [str(one.message) for one in shown] == ["this is old"]
