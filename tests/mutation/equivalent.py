"""Random mutants that change nothing that their lesson says, each with the reason; `make mutants RANDOM=` skips them.

Each topic has its mutants by their ids, as the report prints them. An edit of the cell changes the ids of its mutants:
tests/check/test_mutation.py then refuses the entry, which has to be reviewed with the new cell.
"""

EQUIVALENT = {}
