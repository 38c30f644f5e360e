"""The lesson find_the_fault, broken on purpose."""

MUTANTS = {
    "another case hangs in the same way": (
        "faulty.run(world, cases[0])\nstates",
        "faulty.run(world, cases[1])\nstates",
    ),
    "the ranks are on one host": ("World(WORLD_SIZE, hosts=2,", "World(WORLD_SIZE, hosts=1,"),
    "the ranks in the barrier call all_reduce": ('call.call == "all_reduce"', 'call.call == "barrier"'),
    "the ranks that wait in the barrier are at fault": ("cases[0], in_backward, 23,", "cases[0], waiting, 23,"),
    "the line on which it shows is at fault": ("in_backward, 23,", "in_backward, 28,"),
    "the timeout is too short": ('23, "uneven inputs"', '23, "timeout too short"'),
    "one step is as good as two": ("[:2]", "[:1]"),
    "the check rejects two parts only": ("waiting, 28,", "waiting, 23,"),
    "no step is as good as one": ("[:1]", "[:0]"),
    "the seed does not decide": ("deal(world, SEED)", "deal(world, WORLD_SIZE)"),
    "the 49th example can be kept": ("[:2]", "[:3]"),
}
