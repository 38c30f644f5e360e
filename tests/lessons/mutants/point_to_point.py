"""The lesson point_to_point, broken on purpose."""

MUTANTS = {
    "a message brings its dtype": ("torch.zeros(2, dtype=torch.int32)", "torch.zeros(2)"),
    "what is posted is copied": ("tensor.fill_(100)  # too early", "tensor = tensor + 99  # too early"),
    "the messages have one tag": (
        """    dist.send(torch.zeros(1), dst=1, tag=7)
    work.wait()
if rank == 1:
    tagged, received = torch.ones(1), torch.zeros(1)
    dist.recv(tagged, src=0, tag=7)
""",
        """    later = dist.isend(torch.zeros(1), dst=1)
    work.wait()
    later.wait()
if rank == 1:
    tagged, received = torch.ones(1), torch.zeros(1)
    dist.recv(tagged, src=0)
""",
    ),
    "all ranks send the same": ("torch.tensor([rank + 1.0]), dst=0)", "torch.tensor([2.0]), dst=0)"),
    "each object is sent by itself": (
        """dist.send_object_list([{"epoch": 3}, "done"], dst=1)
    if rank == 1:
        objects = [None, None]
        dist.recv_object_list(objects, src=0)""",
        """dist.send_object_list([{"epoch": 3}], dst=1)
        dist.send_object_list(["done"], dst=1)
    if rank == 1:
        objects, second = [None], [None]
        dist.recv_object_list(objects, src=0)
        dist.recv_object_list(second, src=0)
        objects += second""",
    ),
    "no rank is stuck": (
        """dist.send(torch.tensor([rank + 1.0]), dst=1 - rank, group=pair)
        dist.recv(torch.zeros(1), src=1 - rank, group=pair)""",
        """work = dist.isend(torch.tensor([rank + 1.0]), dst=1 - rank, group=pair)
        dist.recv(torch.zeros(1), src=1 - rank, group=pair)
        work.wait()""",
    ),
    "the send is never waited for": (
        "    dist.recv(received, src=other)\n    work.wait()",
        "    dist.recv(received, src=other)",
    ),
    "by parity both ranks send first, too": (
        "if rank % 2 == 0:\n        dist.send",
        "if rank < 2:\n        dist.send",
    ),
    "the token is passed on as it came": ("token += rank + 1", "token += 1"),
    "the other ranks do not wait for the token": (
        """    if rank > 0:
        dist.recv(token, src=left)
    worked = work_on(token)
    dist.send(token, dst=right)
""",
        """    if rank > 0:
        token.fill_(rank * (rank + 1) / 2)
        work = dist.irecv(token.clone(), src=left)
    worked = work_on(token)
    dist.send(token, dst=right)
    if rank > 0:
        work.wait()
""",
    ),
    "the weights travel for every loss": ("torch.tensor(rank == 0 and loss < 0.5)", "torch.tensor(rank == 0)"),
    "a whole round trip is the time of a message": (
        "seconds.append((time.perf_counter() - start) / 2)",
        "seconds.append(time.perf_counter() - start)",
    ),
    "the longest round trip counts": ("return min(seconds)", "return max(seconds)"),
    "the slowest pass counts": ("passes.min(axis=0)", "passes.max(axis=0)"),
    "the limit is gloo itself": (
        "ping_pong(send_over_socket, receive_over_socket,",
        "ping_pong(send_over_gloo, receive_over_gloo,",
    ),
    "gloo is the limit itself": (
        "return measure(size), bare",
        "return bare, bare",
    ),
    "the model has no latency": ("model = alpha + beta * sizes", "model = beta * sizes"),
    "the model has no bandwidth": ("model = alpha + beta * sizes", "model = alpha + 0 * sizes"),
    "ping-pong plays with floats, not bytes": ("torch.zeros(size, dtype=torch.uint8)", "torch.zeros(size)"),
    "the figure of the ring shows the sends": ('if message.call == "recv"]', 'if message.call == "send"]'),
    "alpha and beta are swapped": ("beta, alpha = np.polyfit(", "alpha, beta = np.polyfit("),
    "many small messages pay for one latency": (
        "    return count * (alpha + beta * size)",
        "    return alpha + count * beta * size",
    ),
    "the fit minimises errors in seconds": (", w=1 / gloo)", ")"),
    "a rank that has begun works for ever": ("begin <= now < end", "begin <= now"),
    "rank 0 posts its weights before the decision": (
        """            dist.send(wanted, dst=1)
        else:""",
        """            dist.send(weights[loss], dst=1)
            dist.send(wanted, dst=1)
        else:""",
    ),
    "no rank of the figure waits": (
        "waits.append((receive.posted, receive.ended))",
        "waits.append((receive.ended, receive.ended))",
    ),
    "a small message makes as few round trips as a large one": (
        "max(2, min(200, 2**22 // size))",
        "min(2, max(200, 2**22 // size))",
    ),
    "the model is off by the smaller of two ratios": (
        "error = np.maximum(model / gloo, gloo / model)",
        "error = np.minimum(model / gloo, gloo / model)",
    ),
}
