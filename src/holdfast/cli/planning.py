"""What ``--dry-run`` prints, and what the command itself says afterwards."""

import sys
from argparse import Namespace
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from jsonargparse import ArgumentParser

from holdfast.cli.exit_codes import EXIT_OK

if TYPE_CHECKING:
    from holdfast.forecasts import Account, Forecast


def add_dry_run(parser: ArgumentParser) -> None:
    """``--dry-run``."""
    parser.add_argument(
        "--dry-run",
        action="store_true",
        help="do nothing: say what would run, and how long it would take, from a few seconds of measuring",
    )


def dry_run(command: str, arguments: Namespace, forecasts: "Sequence[Forecast]") -> int:
    """Print what would run, and keep the sum for the day it does."""
    from holdfast.forecasts import in_sum, remember

    for forecast in forecasts:
        for line in forecast.lines():
            print(line)
    remember(command, vars(arguments), in_sum(forecasts))
    return EXIT_OK


@contextmanager
def told_how_far_off(command: str, arguments: Namespace) -> "Iterator[Account]":
    """Say in the end what the command took, beside what its dry run said, if there was one."""
    from holdfast.forecasts import Account, accounted
    from holdfast.launched import process_count

    if process_count() > 1:  # one process of several does not know what they took
        yield Account()
        return
    with accounted(command, vars(arguments)) as account:
        yield account
    if account.sentence:
        print(account.sentence, file=sys.stderr)
