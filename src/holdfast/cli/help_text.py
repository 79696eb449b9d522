"""How options explain themselves: what they do, and their default where there is one to tell."""

from argparse import SUPPRESS, Action

from jsonargparse import DefaultHelpFormatter


class PlainHelp(DefaultHelpFormatter):
    """Without types of Python and empty defaults; values of a recipe keep both, for there they are the text."""

    def _get_help_string(self, action: Action) -> str:
        said = action.help or ""
        if "." in action.dest or action.dest in ("help", "help_all"):
            return str(super()._get_help_string(action))
        told = not action.option_strings or action.default in (None, False, "", SUPPRESS) or "default:" in said
        return said if told else f"{said} (default: %(default)s)"
