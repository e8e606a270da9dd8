"""Threads of one engine, run one at a time in an order that is chosen, and crashed at the switches."""
