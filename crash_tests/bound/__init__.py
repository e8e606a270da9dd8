"""Producers with a database of their own, and that database's server, killed: do both agree?"""
