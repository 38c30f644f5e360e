"""How ranks start fast, find each other, are reached by the notebook, and never outlive it.

Here belongs what makes processes, sockets and files, and what ends them. What a rank is doing is told in `look`, what
it sends is counted in `measure`.
"""
