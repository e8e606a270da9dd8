"""What each public call costs, in figures that are the same on every machine.

`counting` counts what a call does, `rows` says which calls there are, `faces` on which objects they
are made, `lines` counts the code, and `table` keeps the figures that are checked in.
"""
