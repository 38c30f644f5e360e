"""The lesson hybrid_failures, broken on purpose."""

MUTANTS = {
    "the copy waits for all trainers": (
        "    copies = copied()\n    dist.barrier()\n",
        "    dist.barrier()\n    threading.Event().wait(0.5)\n    copies = copied()\n",
    ),
    "the checkpoint does not wait for all trainers": (
        "    dist.barrier(group)\n    if dist.get_rank(group) == 0:",
        "    if dist.get_rank(group) == 0:",
    ),
    "the checkpoint is named before it is complete": (
        '        write(f"dense-{number}", model.dense.module.state_dict())\n        write("latest", number)',
        '        write("latest", number)\n        write(f"dense-{number}", model.dense.module.state_dict())',
    ),
    "the checkpoint is stale": ("number % 10 == 9", "number == 9"),
    "trainer 1 vanishes without a word": (
        'watch_death(1, "train_all")',
        'watch_death(1, "train_all", signal.SIGSTOP)',
    ),
    "a machine that vanishes takes leave": (
        'watch_death(1, "train_all", signal.SIGSTOP)',
        'watch_death(1, "train_all")',
    ),
    "the group is as patient as RPC": ("group_timeout=5", "group_timeout=10"),
    "the master asks one trainer after the other": (
        "with ThreadPoolExecutor() as threads",
        "with ThreadPoolExecutor(1) as threads",
    ),
    "a file is written in place": (
        '{file}.by-{name}")\n    os.replace(f"{job.folder}/{file}.by-{name}", f"{job.folder}/{file}")',
        '{file}")',
    ),
    "the server lives": ('watch_death(server, "train_all")', 'watch_death(1, "train_all")'),
    "the trainers stop with the master": (
        '            with marked("trains"):\n',
        '            with marked("trains"):\n                rpc.rpc_sync("master", latest)\n',
    ),
    "the checkpoints die with the server": ("fresh_ranks()\nnumber = ", "fresh_ranks(forget=True)\nnumber = "),
    "the server calls a trainer": (
        "def save_table(table, number):\n",
        'def save_table(table, number):\n    rpc.rpc_sync("trainer1", latest)\n',
    ),
    "the error of a call is dropped": (
        "        call.result()  # raises the error of the call\n",
        "        call.exception()\n",
    ),
    "a trainer runs two calls at once": (
        "def train(begin, end):\n    with busy:\n",
        "def train(begin, end):\n    if True:\n",
    ),
    "the master asks for all steps in one call": (
        "    for first in range(begin, end, 10):\n        call_trainers(members, train, first, min(first + 10, end))",
        "    for first in range(begin, end, 400):\n        call_trainers(members, train, first, min(first + 400, end))",
    ),
}
