"""Public calls at random, from several threads and clients, with odd arguments."""
