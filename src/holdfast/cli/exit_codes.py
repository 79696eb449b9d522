"""What the command returns to the shell."""

import signal

EXIT_OK, EXIT_BAD_INPUT = 0, 2
EXIT_SIGNAL = 128  # plus the signal's number, as shells count
EXIT_INTERRUPTED = EXIT_SIGNAL + signal.SIGINT
