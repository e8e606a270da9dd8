"""Kills producers with a database of their own, and the database's server. Afterwards both must
agree.
"""
