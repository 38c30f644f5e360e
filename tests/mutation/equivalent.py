"""Random mutants that change nothing that their lesson says, each with the reason; `make mutants RANDOM=` skips them.

Each topic has its mutants by their ids, as the report prints them. An edit of the cell changes the ids of its mutants:
tests/check/test_mutation.py then refuses the entry, which has to be reviewed with the new cell.
"""

EQUIVALENT = {
    "collectives": {
        "c70f0a44c7": "`gather` without `dst=0`: gloo collects on rank 0 anyway",
        "c80e3cbe56": "the rows of the figure change places, and the text says of each what it shows, not where",
        "31daa0af88": "`recv` without `src=0`: no other rank sends",
        "f90675c2c4": "`word` has two elements: it only says that rank 0 has sent it",
    },
    "data_parallel": {
        "b2a571c435": "only calls and times are measured of `small_layers`, so each rank may start with weights of its own",
        "0c501863d1": "each rank takes the shard of the next: the shards are disjoint and complete as before",
    },
    "faster_distributed_rnn": {
        "6816286279": "the bytes of a forward pass are counted, which are the same outside of a context",
    },
}
