"""What the exit codes of `fmq` mean."""

FINE = 0
PROBLEM = 1  # found, and listed
USAGE = 2  # the command line makes no sense; argparse's own number
ERROR = 3  # of fmq's or of the machine's, said on stderr in one paragraph
INTERRUPTED = 130  # as a shell says it: 128 and the number of the signal
BROKEN_PIPE = 141
