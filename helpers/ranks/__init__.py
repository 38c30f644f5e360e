"""How ranks start fast, find each other, are reached by the notebook, and never outlive it.

The modules here make processes, sockets and files, end them, and have a rank answer questions about itself. `look`
shows what a rank does, `measure` counts what it sends.
"""
