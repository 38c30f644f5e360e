"""Random mutants that change nothing that their lesson says, each with the reason; `make mutants RANDOM=` skips them.

The key is the mutant's id, as the report prints it. An edit of the cell changes the id, so an entry is reviewed again
with its cell.
"""

EQUIVALENT = {}
