"""What a person on call asks, answered by the calls of an engine and by its files: verdicts,
stories and rates, as values and as sentences.
"""
