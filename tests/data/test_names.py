"""The public names of `natgrad.data` are what they say, whatever was imported before."""

import importlib
import pkgutil
from types import ModuleType

import natgrad.data


def test_no_public_name_is_that_of_a_module():
    # A module that is imported becomes an attribute of its package, and would be found instead of a function of its name.
    for module in pkgutil.walk_packages(natgrad.data.__path__, "natgrad.data."):
        importlib.import_module(module.name)
    found = {name: getattr(natgrad.data, name) for name in natgrad.data.__all__}
    assert not [name for name, value in found.items() if isinstance(value, ModuleType)]
