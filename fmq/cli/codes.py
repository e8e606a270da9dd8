"""The exit codes of `fmq`."""

FINE = 0
PROBLEM = 1  # a problem was found, and printed
USAGE = 2  # the command line makes no sense; argparse uses this number
ERROR = 3  # an error of fmq or of the machine, printed on stderr
INTERRUPTED = 130  # as shells do: 128 and the number of the signal
BROKEN_PIPE = 141
