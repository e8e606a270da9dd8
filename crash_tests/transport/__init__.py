"""Clients of a server: their streams are cut, they die, and the server dies, at each step."""
