"""The lesson what_a_cable_costs, broken on purpose."""

MUTANTS = {
    "the cable carries bits as if they were bytes": (
        "cables = network.limit(world, 8 * R) if world.has_cables",
        "cables = network.limit(world, R) if world.has_cables",
    ),
    "a byte takes as long inside a host as over the cable": (
        'times = {"inside a host": times_to(1), ',
        'times = {"inside a host": times_to(m), ',
    ),
    "the smallest message gives the time per byte": (
        "(seconds[-1] - seconds[-2]) / (sizes[-1] - sizes[-2])",
        "(seconds[1] - seconds[0]) / (sizes[1] - sizes[0])",
    ),
    "a burst is as slow as the rate": (
        "30 if size < 2**17 else few)[0] for size in sizes]",
        "30 if size < 2**17 else few)[0] + size / R for size in sizes]",
    ),
    "ranks that send at once have a cable each": (
        "[(rank, m + rank) for rank in range(m)]",
        "[(rank, m + rank) for rank in range(1)]",
    ),
    "the two directions share the cable": (
        '"both directions": [(0, m), (m + 1, 1)],',
        '"both directions": [(0, m), (1, m + 1)],',
    ),
    "each rank of a host sends to one rank": ("for to in range(m, n)]", "for to in [source + m]]"),
    "the model adds both directions of a cable": (
        'for direction in (("out of", source // m), ("into", destination // m)):',
        "for direction in (source // m, destination // m):",
    ),
    "the model gives each message a cable": (
        "loads[direction] = loads.get(direction, 0) + size",
        "loads[direction] = size",
    ),
    "the cyclic ring passes host by host": (
        "[rank for local in range(m) for rank in (local, m + local)]",
        "[rank for first in (0, m) for rank in range(first, first + m)]",
    ),
    "all ranks of a host take part across": (
        "    if rank == first:\n        dist.all_reduce(tensor, group=across)\n    dist.broadcast",
        "    dist.all_reduce(tensor, group=across)\n    dist.broadcast",
    ),
    "a ring has half of its steps": (
        "return [(2 * (len(order) - 1), messages)]",
        "return [(len(order) - 1, messages)]",
    ),
    "the model alternates the hosts of the block order too": (
        '"block_ring": ring_steps(order, size),',
        '"block_ring": ring_steps(alternating, size),',
    ),
    "a slow connection slows only its own messages": (
        "    network.limit(world, 8 * R / 4, ranks=[n - 1])",
        "    network.limit(world, 8 * R)",
    ),
    "another connection is slow": (
        "    network.limit(world, 8 * R / 4, ranks=[n - 1])",
        "    network.limit(world, 8 * R / 4, ranks=[m])",
    ),
    "the cable stays in": (
        "    world.unplug(cut_off)\n    try:\n        time.sleep(outage)",
        "    try:\n        time.sleep(outage)",
    ),
    "the host keeps the addresses without its cable": (
        "    world.unplug(cut_off)\n    try:\n        time.sleep(0.2)\n        known_without_cable",
        "    try:\n        time.sleep(0.2)\n        known_without_cable",
    ),
    "the H100 hosts have slow cables": (
        "(450e9, 8 * 400e9 / 8),\n}",
        "(450e9, 400e9 / 8),\n}",
    ),
    "the A100 hosts have fast cables": (
        '"A100, 400 Gbit/s": (300e9, 400e9 / 8),',
        '"A100, 400 Gbit/s": (300e9, 8 * 400e9 / 8),',
    ),
    "an arrow carries the tensors of a single step": (
        "tensors[source, to] = tensors.get((source, to), 0) + count * size",
        "tensors[source, to] = tensors.get((source, to), 0) + size",
    ),
    "a host with GPUs has as many ranks as a host of the lesson": (
        'world.call("by_model", h, 8, size, *links_of_host)',
        'world.call("by_model", h, m, size, *links_of_host)',
    ),
    "a GPU sends at NVLink's rate for both directions": (
        '"A100, 400 Gbit/s": (300e9, 400e9 / 8),',
        '"A100, 400 Gbit/s": (600e9, 400e9 / 8),',
    ),
    "two levels do not broadcast": (
        "return [(1, reduce), *ring_steps(firsts, size), (1, broadcast)]",
        "return [(1, reduce), *ring_steps(firsts, size)]",
    ),
    "the addresses are those of the host with a cable": (
        'known_without_cable = world.call("hardware_addresses")[-1]',
        'known_without_cable = world.call("hardware_addresses")[0]',
    ),
    "the model predicts the times of a single tensor in bits": (
        'world.call("by_model", 2, m, B, links["inside a host"], between_hosts)',
        'world.call("by_model", 2, m, B / 8, links["inside a host"], between_hosts)',
    ),
}
