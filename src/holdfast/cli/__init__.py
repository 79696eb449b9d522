"""The command line, one module for each command; and the exit codes that all of them return to the shell."""

import signal

from holdfast.runtime.signals import Terminated

EXIT_OK, EXIT_SHUT, EXIT_BAD_INPUT = 0, 1, 2  # 1: the gate found the model worse
EXIT_SIGNAL = 128  # plus the signal's number, as shells count


def stopped_by(stop: KeyboardInterrupt) -> int:
    """The signal behind an interruption: Ctrl-C, or SIGTERM."""
    return signal.SIGTERM if isinstance(stop, Terminated) else signal.SIGINT
