"""Corruptions, attacks, metrics, sets, suites, tasks and analyses of one's own, on the command line.

``HOLDFAST_PLUGINS=my_module,other`` names modules that register them; other processes inherit the variable.
"""

import importlib
import os
import sys

from holdfast.errors import HoldfastError
from holdfast.names import comma_list

VARIABLE = "HOLDFAST_PLUGINS"


def load_plugins() -> None:
    """Import the modules that the environment names; those of the working folder count, as for python itself."""
    for module in comma_list(os.environ.get(VARIABLE, "")):
        sys.path.insert(0, os.getcwd())
        try:
            importlib.import_module(module)
        except ImportError as error:
            raise HoldfastError(
                f"{VARIABLE} must name modules that can be imported, got {module!r} ({error})"
            ) from error
        finally:
            sys.path.remove(os.getcwd())
