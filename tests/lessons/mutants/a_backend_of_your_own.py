"""The lesson a_backend_of_your_own, broken on purpose."""

MUTANTS = {
    "a rank listens on every address": (
        '    server = socket.create_server((os.environ["MASTER_ADDR"], 0))\n',
        '    server = socket.create_server(("", 0))\n',
    ),
    "receiving has no timeout": ("    left.settimeout(seconds)\n", ""),
    "the buffers hold everything that is sent": ('"64 MiB": 2**26}.items()', '"64 MiB": 2**10}.items()'),
    "the ring averages": ("        mine += received\n", "        mine.add_(received).div_(2)\n"),
    "the ring drops a chunk": (
        "    for step in range(n - 1):  # all-gather\n",
        "    for step in range(n - 2):  # all-gather\n",
    ),
    "the broadcast leaves out the last rank": (
        "    if (group.rank() + 1) % group.size() != opts.rootRank:\n",
        "    if (group.rank() + 1) % group.size() < opts.rootRank - 1:\n",
    ),
    "the all-gather is in the order of arrival": (
        "    tensors[rank].copy_(inputs[0])\n",
        "    tensors = tensors[1:] + tensors[:1]\n    tensors[rank].copy_(inputs[0])\n",
    ),
    "the all-gather of DDP carries sizes": (
        "[len(parameters)] * n,  # from each rank\n",
        "[p.numel() for p in parameters],\n",
    ),
    "the first broadcast of DDP carries sizes only": (
        "for number in (*p.size(), *p.stride())]",
        "for number in p.size()]",
    ),
    "DDP has a bucket for each layer": (
        "    model = DDP(new_model(), process_group=group)\n",
        "    model = DDP(new_model(), process_group=group, bucket_cap_mb=0.001)\n",
    ),
    "DDP does without a broadcast": ("    broadcast = dist.ProcessGroup.broadcast\n", "    pass\n"),
    "gloo adds in the order of the ring": (
        "by_ring, by_gloo = train(ring, 20), train(gloo, 20)\n",
        "by_ring, by_gloo = train(ring, 20), train(ring, 20)\n",
    ),
    "the step without the thread has the thread": (
        "on_ring, on_threaded = backwards(ring), backwards(threaded)\n",
        "on_ring, on_threaded = backwards(threaded), backwards(threaded)\n",
    ),
    "nothing overlaps with the thread either": ("    thread.submit(run)\n", "    thread.submit(run).result()\n"),
    "the links are not paced": ("8 * bytes_sent / 0.1)", "8 * bytes_sent / 0.001)"),
    "DDP waits for the future in which the thread sets the error": (
        "        self.future = future.then(lambda ended: ended.value())\n",
        "        self.future = future\n",
    ),
    "an error in the thread is lost": (
        "            future.set_exception(error)\n",
        "            future.set_result(arguments[0])\n",
    ),
    "the error of a rank that left does not spread": (
        "        except OSError:\n            self.shutdown()\n            raise\n",
        "        except OSError:\n            raise\n",
    ),
    "the memory is a file of each rank": (
        'self.path = store.get("path").decode()\n',
        'self.path = store.get("path").decode() if rank == 0 else tempfile.mkstemp()[1]\n',
    ),
    "the file stays": ("            os.unlink(self.path)", "            pass"),
    "a factor is missing in the rate of the links": (
        "bytes_sent = 2 * (n - 1) / n * bucket  # by each rank",
        "bytes_sent = bucket  # by each rank",
    ),
    "every rank leaves": ('        if rank == n - 1 and moment == "step 1":\n', '        if moment == "step 1":\n'),
    "a barrier lets every rank pass": (
        "        return self.allreduce([torch.zeros(self.size())], opts)\n",
        "        return done([])\n",
    ),
    "the store waits for minutes": (
        'dist.rendezvous("env://", timeout=timedelta(seconds=10))',
        'dist.rendezvous("env://")',
    ),
    "a rank closes only its connection to the right": (
        "        self.right.close()\n        self.left.close()",
        "        self.right.close()",
    ),
    "a layer pauses for 80 ms": ("        time.sleep(0.12)\n", "        time.sleep(0.08)\n"),
    "all ranks have the same data": ("manual_seed(SEED + rank)", "manual_seed(SEED)"),
    "the ranks that remain get their errors by a short timeout": (
        "    broken = dist.new_group(backend=backend, timeout=timedelta(seconds=10))\n",
        "    broken = dist.new_group(backend=backend, timeout=timedelta(seconds=2))\n",
    ),
    "a broadcast always begins at rank 0": (
        "    if group.rank() != opts.rootRank:\n",
        "    if group.rank() != 0:\n",
    ),
    "DDP averages over gloo": ("final = train(ring, 4, note)", "final = train(gloo, 4, note)"),
    "the bytes of a tensor are a copy": (
        "    return memoryview(tensor.view(-1).view(torch.uint8).numpy())",
        "    return memoryview(tensor.view(-1).view(torch.uint8).numpy().copy())",
    ),
}
