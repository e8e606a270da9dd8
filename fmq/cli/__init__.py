"""The command `fmq`. Each verb has a file; `main` runs the one that was named."""
