"""Instruments: bytes, messages and calls counted, links paced, times and time lines noted.

Here belongs what wraps or reads torch and the system's counters while a block runs. An instrument returns plain data;
it draws nothing, and leaves nothing behind when its block has ended.
"""
