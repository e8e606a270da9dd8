"""Feedback: asking the producers what became of their undecided transactions."""
