"""Reviewed random mutants that change nothing that their lesson says, with the reason.

`make mutants RANDOM=` skips them. The key of a mutant is its id from the report. An edit of the cell changes the ids of
its mutants; then tests/check/test_mutation.py refuses the entry, and the new mutant needs a new review.
"""

EQUIVALENT = {
    "collectives": {
        "602d2e0f92": "`gather` without `dst=0`: rank 0 is the default",
        "df4c3da084": "`recv` without `src=0`: no other rank sends",
        "60fa930a0a": "`message` has two elements: it only says that rank 0 has sent it",
        "5f7ba6c479": "the course's own halves leave their argument alone; the copy guards it against the learner's",
        "74c4231499": "the course's own all_gather leaves its argument alone; the copy guards it against the learner's",
        "af54d5c826": "only when ranks come and go is looked at, whatever tensor the chunk arrives in",
        "9b77393a46": "only when ranks come and go is looked at, whatever tensor the chunk arrives in",
        "ede2197870": "only when ranks come and go is looked at, whatever tensor the chunk arrives in",
        "28477242db": "the results of ranks 1 and 2 contain numbers of the last rank after the same collectives",
        "cbb423c11d": "in this lesson a result with numbers of the last rank but one also has numbers of the last rank",
        "fd0ae7603c": "in this lesson a result with numbers of the last rank but one also has numbers of the last rank",
    },
    "data_parallel": {
        "7264037324": "each rank takes the shard of the next rank: the shards are disjoint and complete as before",
        "0faf563b73": "only the values of the final weights are used, so they may carry a graph",
    },
    "distributed_rnn": {
        "2a844234ea": "the text does not say which words of it are printed",
    },
    "faster_distributed_rnn": {
        "c2b13dd308": "of two ranks each has a name in the list, and with three ranks the list is too short",
        "afd28757cc": "the text names the width once, and every formula takes it as it is",
        "659977f4d9": "no later step goes on from this hidden state",
        "ddec5d1481": "words and targets have the same shape and type, so the same bytes travel",
        "90530573bf": "words and targets have the same shape and type, so the same bytes travel",
        "7be1981009": "words and targets have the same shape and type, so the same bytes travel",
        "7ece35b399": "words and targets have the same shape and type, so the same bytes travel",
        "7d74ad2a3d": "the values are only copied, and no context records the call",
    },
    "hybrid_costs": {
        "09670f6c9f": "only changes which speed the title prints; no assert tests a speed",
        "ded72cc52b": "only changes which unit is printed; no assert tests a speed",
    },
    "hybrid_ddp_rpc": {
        "b2fb6a9852": "the lesson passes SEED, and the checks read the weights of the table that they get",
        "f18af4ee33": "the text names no timeout of this group",
        "5044138398": "outside a context nothing fails, so any model without a gradient shows the same",
    },
    "inside_ddp": {
        "768b6c7e4b": "the ranks only exchange their batches, and the order of events depends on no batch",
        "7d9629241f": "only changes which of the measured times is drawn; the bounds hold for each of them",
        "7a882164ed": "the ranks only exchange their batches, and the error depends on no batch",
        "b51bcbea69": "the sizes of the buckets depend on no gradient",
        "580a289e02": "the time that a bucket travels depends on no gradient",
        "73499670c3": "DDP launches nothing between the two gradients of `first`",
        "716c269542": "the ranks only exchange their batches, and whether DDP sends depends on no batch",
        "4463246e8d": "DDP raises the error in the first step, and the folded proof takes two steps of what trains",
    },
    "point_to_point": {
        "d0a62edd5b": "the posted number is overwritten before it travels, whatever it is",
    },
    "reinforcement_learning": {
        "63b79c1f41": "only changes which of the measured speeds is printed; no assert tests a speed",
    },
    "ring_all_reduce": {
        "d0346154da": "messages and bytes are counted, whatever the elements of the tensor are",
        "9a90cde2fa": "the text does not say at which step the slider begins",
    },
    "ring_attention": {
        "1a22437327": "the mask has a copy for each head, with the same values",
    },
    "rpc_and_rref": {
        "00e7fee013": "the other ranks time calls as well, and only the calls of rank 0 are drawn",
    },
    "rpc_threads_and_failures": {
        "620e4ba420": "a deadline for a reader who never calls `release`",
        "d0a23f3429": "the worker dies before its nap ends, whether that lasts 30 s or 31 s",
        "57f438782c": "the worker is dead already only where the cell runs twice",
        "fa27554ef4": "a deadline: the text does not say how long `leave` waits",
        "86918f5008": "a deadline: the text does not say how long `leave` waits",
        "d3d9357fdf": "a deadline: the text does not say how long `leave` waits",
        "0e38f64590": "a deadline: the text does not say how long `leave` waits",
    },
    "uneven_ranks": {
        "f5920b4191": "only the values of the weights are used, so they may carry a graph",
        "7b9501684e": "the output has one element, so its sum is its mean",
        "a3b91431aa": "no cell of the lesson waits for the timeout of the default group",
        "b609af79ad": "the additional step still has the same input on all ranks",
        "f2c0aab1f0": "the size of the batch changes neither the bytes of the gradients nor which rank waits",
    },
    "what_ddp_does_not_report": {
        "37b63c109c": "the model's output has one element, so its mean is its sum",
    },
    "several_trainers": {
        "2541f3f501": "only hides a warning of torch",
        "4943da4b23": "no step has run before, so the log of the server has no earlier events to drop",
        "14cb7e2512": "the steps are only compared and counted, so they may carry a graph",
    },
    "sharded_embeddings": {
        "8ac1fd492d": "the stored SEED is 0, and any factor of it draws other passages for other seeds",
    },
    "three_dimensions": {
        "c615728041": "torch 2.13 itself gives the `fake` backend such a store",
        "7729d5be31": "the caption does not say in which order the rows are",
    },
    "when_ranks_disagree": {
        "6f5380d38e": "no cell waits for the timeout of the default group",
        "cc2f75359b": "the text says that ranks wait until the timeout, and does not say how long it is",
    },
    "when_ranks_fail": {
        "642101f397": "only shows what the ranks printed; asserts read the same errors and times from the ranks",
        "91ee9bc6ba": "the text does not say how long this group waits",
    },
}
