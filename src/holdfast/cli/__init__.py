"""The command line, one module for each command; and the exit codes that all of them return to the shell."""

import signal

from holdfast.runtime.signals import Terminated

EXIT_OK, EXIT_GATE_FAILED, EXIT_BAD_INPUT = 0, 1, 2
EXIT_SIGNAL = 128  # plus the signal's number: the convention of POSIX shells


def stopped_by(stop: KeyboardInterrupt) -> int:
    """Return the signal behind an interruption: SIGINT (Ctrl-C) or SIGTERM."""
    return signal.SIGTERM if isinstance(stop, Terminated) else signal.SIGINT
