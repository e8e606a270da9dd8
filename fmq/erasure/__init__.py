"""Erasing messages: `erase` overwrites what they were in every file that has it."""
