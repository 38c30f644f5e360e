"""The lesson in_your_own_job, broken on purpose."""

MUTANTS = {
    "the disk of rank 1 answers": ("time.sleep(600)", "time.sleep(0)"),
    "the disk of another rank does not answer": ('"loader" and rank == 1', '"loader" and rank == 0'),
    "no signal is registered": ("faulthandler.register(signal.SIGUSR1)", "pass"),
    "no alarm writes the stacks": ("faulthandler.dump_traceback_later(2)", "pass"),
    "an evaluation looks like a slow step": ("    end_steps()\n    dist.destroy", "    dist.destroy"),
    "the records keep the wrong name of the group": (
        'record["pg_config"] = {"0": {**record["pg_config"][""], "name": "0"}}',
        'record["pg_config"] = dict(record["pg_config"])',
    ),
    "no error file is written": ("@record\n", ""),
    "the other ranks log as well": ('"log" and rank == 1 and step == 2', '"log" and step == 2'),
    "the log has as many elements as the gradient": ("torch.zeros(1)", "torch.zeros(4)"),
    "it is rank 0 that logs": ('"log" and rank == 1', '"log" and rank == 0'),
    "the record has no lines": (
        "({tensors}), line {frames[0]['line']}, in {frames[0]['name']}",
        "({tensors})",
    ),
    "the lesson counts places from 0": ("return place + 1, ranks_of", "return place, ranks_of"),
    "two different calls are no difference": ("if len(ranks_of) > 1:", "if len(ranks_of) > 2:"),
    "the ranks do not compare their calls": ('TORCH_DISTRIBUTED_DEBUG="DETAIL"', 'TORCH_DISTRIBUTED_DEBUG="OFF"'),
    "fingerprints cost nothing": ("cost(dist.DebugLevel.DETAIL,", "cost(dist.DebugLevel.INFO,"),
    "a matrix has the fingerprint of a vector": (
        "DETAIL, torch.ones(3, 5))",
        "DETAIL, torch.ones(15))",
    ),
    "the stack of rank 0 is the stack of rank 1": ("= dumps[1]", "= dumps[0]"),
    "the last entry of rank 0 is the last entry of rank 1": ("records[1][-1]", "records[0][-1]"),
    "the last rank is not late": ("time.sleep(3)\n    try", "time.sleep(0)\n    try"),
    "the barrier and the training share a group": (
        "dist.monitored_barrier(barrier_group, timeout",
        "dist.monitored_barrier(training := barrier_group, timeout",
    ),
    "the monitored barrier waits longer": (
        "timedelta(seconds=1), wait_all_ranks",
        "timedelta(seconds=9), wait_all_ranks",
    ),
}
