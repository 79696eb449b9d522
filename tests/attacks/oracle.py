"""adv-lib, an independent attack library, imported without the plotting server it asks for."""

import sys
import types

sys.modules.setdefault("visdom", types.ModuleType("visdom"))

from adv_lib.attacks import pgd_linf  # noqa: E402

__all__ = ["pgd_linf"]
