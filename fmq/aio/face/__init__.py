"""The public calls as coroutines. Only here they are written by hand."""
