"""The side of a client: an engine in another process, with the calls of one in this process."""
