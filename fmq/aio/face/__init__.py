"""The public calls as coroutines, and the only place where a call is written by hand."""
