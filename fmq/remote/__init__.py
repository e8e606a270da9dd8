"""The client's side: an engine in another process, with the calls of one in this process."""
