"""The command `fmq`: a verb a file, told to do its work by `main`."""
