"""The lesson a_backend_of_your_own, broken on purpose."""

MUTANTS = {
    "all send first, and a buffer takes it all": ('"64 MiB": 2**26}.items()', '"64 MiB": 2**10}.items()'),
    "the ring averages": ("            mine += received\n", "            mine.add_(received).div_(2)\n"),
    "the ring drops a chunk": (
        "        for step in range(n - 1):  # all-gather\n",
        "        for step in range(n - 2):  # all-gather\n",
    ),
    "the ring sends whole tensors": (
        "            self.exchange(chunks[(rank - step) % n], received)\n",
        "            self.exchange(tensors[0], torch.empty_like(tensors[0]))\n",
    ),
    "the broadcast leaves out the last rank": (
        "        if (self.rank() + 1) % self.size() != opts.rootRank:\n",
        "        if (self.rank() + 1) % self.size() < opts.rootRank - 1:\n",
    ),
    "the allgather is in the order of arrival": (
        "        parts[rank].copy_(inputs[0].view(-1))\n",
        "        parts = parts[1:] + parts[:1]\n        parts[rank].copy_(inputs[0].view(-1))\n",
    ),
    "DDP sends a bucket for each layer": (
        "    model = DDP(new_model(), process_group=group)\n",
        "    model = DDP(new_model(), process_group=group, bucket_cap_mb=0.001)\n",
    ),
    "DDP does without a broadcast": ("    broadcast = dist.ProcessGroup.broadcast\n", "    pass\n"),
    "gloo adds up in the order of the ring": (
        "dist.all_reduce(by_gloo, group=gloo)\n",
        "dist.all_reduce(by_gloo, group=ring)\n",
    ),
    "backward goes on without a thread": ("without_thread = backwards(ring)", "without_thread = [pauses] * 3"),
    "nothing overlaps with a thread either": (
        "        self.thread.submit(fulfil, future, collective, arguments)\n",
        "        self.thread.submit(fulfil, future, collective, arguments).result()\n",
    ),
    "the news of a rank that left does not go round": (
        "        except OSError:\n            self.shutdown()\n            raise\n",
        "        except OSError:\n            raise\n",
    ),
    "the memory is a file of each rank": (
        'self.path = store.get("path").decode()\n',
        'self.path = store.get("path").decode() if rank == 0 else tempfile.mkstemp()[1]\n',
    ),
    "nobody waits until all rows are written": ("            self.meet()  # all rows are written\n", ""),
    "the tensor goes through the sockets, too": (
        "            self.meet()  # all chunks are added up\n",
        "            self.meet()  # all chunks are added up\n            self.exchange(piece, piece.clone())\n",
    ),
    "the file stays": ("            os.unlink(self.path)", "            pass"),
}
