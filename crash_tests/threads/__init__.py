"""Threads of one engine: one goes on at a time, and they are crashed where they take turns."""
