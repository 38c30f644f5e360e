"""Instruments that count bytes, messages and calls, pace links, and record times and time lines.

An instrument wraps or reads torch and the system's counters while a block runs. It returns plain data, draws nothing,
and leaves nothing behind when its block ends.
"""
