"""Every example in a docstring of motley.functional gives what it says."""

import doctest
import importlib
import inspect
import pkgutil
import warnings

import pytest

import motley.functional

NAMES = [module.name for module in pkgutil.iter_modules(motley.functional.__path__, "motley.functional.")]


@pytest.mark.parametrize("name", NAMES)
def test_examples_give_what_they_say(name):
    module = importlib.import_module(name)
    with warnings.catch_warnings():
        result = doctest.testmod(module, optionflags=doctest.ELLIPSIS)
    assert result.attempted > 0
    assert result.failed == 0


@pytest.mark.parametrize("name", NAMES)
def test_every_public_function_has_an_example(name):
    module = importlib.import_module(name)
    functions = [
        (key, value)
        for key, value in vars(module).items()
        if inspect.isfunction(value) and value.__module__ == name and not key.startswith("_")
    ]
    assert functions
    assert [key for key, value in functions if ">>>" not in (value.__doc__ or "")] == []
