"""What people see: figures and tables, drawn from stored results alone.

``holdfast.report`` is this package and also the function :func:`holdfast.report.page.report`: Python has one attribute
for a package and a function of one name, so the package can be called.
"""

import sys
from types import ModuleType
from typing import Any


class _CallablePackage(ModuleType):
    def __call__(self, *arguments: Any, **options: Any) -> str:
        from holdfast.report.page import report

        return report(*arguments, **options)


sys.modules[__name__].__class__ = _CallablePackage
