"""The lesson two_hosts, broken on purpose."""

MUTANTS = {
    "a host's second rank is the first of the next": (
        "assert rank == group_rank * m + local_rank\n",
        "assert rank == group_rank + local_rank * m\n",
    ),
    "the cable stays in although the text says that it is out": (
        "    world.unplug(cut_off)\n    unplugged_at = time.monotonic()",
        "    unplugged_at = time.monotonic()",
    ),
    "the cable stays out longer than the group waits": (
        "    start_training(timeout=10)\n    world.unplug(cut_off)",
        "    start_training(timeout=1)\n    world.unplug(cut_off)",
    ),
    "a cable that is out for good ends after a moment": (
        "        time.sleep(1)\n        where = world.where()",
        "        time.sleep(1)\n        world.plug(cut_off)\n        where = world.where()",
    ),
    "a killed rank is as silent as a cable": (
        "    os.kill(world.pids[-1], signal.SIGKILL)",
        "    os.kill(world.pids[-1], signal.SIGSTOP)",
    ),
    "ranks with an error keep their connections": (
        'report["done"].append(time.monotonic())\n    leave_group()',
        'report["done"].append(time.monotonic())',
    ),
    "both terminals are those of the first host": (
        "--nproc-per-node={m} --node-rank={group_rank} ",
        "--nproc-per-node={m // 2} --node-rank={group_rank} ",
    ),
    "the second host gets the right address": (
        '"wrong address": ({}, {"address": "10.77.0.99"}),',
        '"wrong address": ({}, {"address": "10.77.0.11"}),',
    ),
    "the loopback leads to the other host": (
        'loopback = {"interface": "lo", ',
        'loopback = {"interface": "eth0", ',
    ),
    "every host gets the right number of hosts": (
        '"wrong number of hosts": ({"nodes": 3}, {}),',
        '"wrong number of hosts": ({"nodes": 2}, {}),',
    ),
    "a process listens at the closed port": (
        'answers = [knock(address, port), knock(address, 29499), knock("10.77.0.99", port)]',
        'answers = [knock(address, port), knock(address, port), knock("10.77.0.99", port)]',
    ),
    "all ranks of a host take part across": (
        "    if rank == first:\n        dist.all_reduce(tensor, group=across)\n    dist.broadcast",
        "    dist.all_reduce(tensor, group=across)\n    dist.broadcast",
    ),
    "the second level is inside a host as well": (
        'across = mesh.get_group("host")',
        'across = mesh.get_group("local")',
    ),
    "a host has a second interface": (
        'usable == {"lo", "eth0"}',
        'usable == {"lo", "eth0", "eth1"}',
    ),
    "one ring sends no more than two levels": (
        "counted[name] = leaving(name)",
        'counted[name] = leaving("two_levels")',
    ),
    "the panel of the unplugged cable shows the killed rank": (
        "scene(cut, cut_at, cut_until)",
        "scene(death, cut_at, cut_until)",
    ),
    "the panel of the killed rank shows the unplugged cable": ("scene(death, killed_at)", "scene(cut, killed_at)"),
    "the last step is the next step after the outage": (
        "first_after = min(done for done in times if done > plugged_at)",
        "first_after = max(done for done in times if done > plugged_at)",
    ),
    "the cable of the first host is out": (
        "cut_off = world.hosts[-1]",
        "cut_off = world.hosts[0]",
    ),
    "a cable that is hardly out makes a step long": (
        "        time.sleep(2)\n    finally:",
        "        time.sleep(0.02)\n    finally:",
    ),
    "torchrun starts the first ranks on the second host": (
        'world.view.pull("printed", targets=m)',
        'world.view.pull("printed", targets=0)',
    ),
}
