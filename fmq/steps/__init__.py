"""Calls as generators: the steps that they yield, and how a thread carries the steps out."""
