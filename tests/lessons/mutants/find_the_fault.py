"""The lesson find_the_fault, broken on purpose."""

MUTANTS = {
    "another case hangs alike": ("faulty.run(world, cases[0])\nstates", "faulty.run(world, cases[1])\nstates"),
    "the ranks are on one host": ("World(WORLD_SIZE, hosts=2,", "World(WORLD_SIZE, hosts=1,"),
    "it is the first to wait that averages": ('call.call == "all_reduce"', 'call.call == "barrier"'),
    "whoever waits in the barrier is at fault": ("cases[0], in_backward, 23,", "cases[0], waiting, 23,"),
    "the line on which it shows is at fault": ("in_backward, 23,", "in_backward, 28,"),
    "time is what is missing": ('23, "one batch more"', '23, "too little time"'),
    "one step is as good as two": ("[:2]", "[:1]"),
    "the 49th example can be kept": ("[:2]", "[:3]"),
}
