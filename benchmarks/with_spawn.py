"""One fresh process that starts 4 ranks with torch.multiprocessing.spawn, as a script does.

Prints the seconds from the start of the process to the first all_reduce as the last line, in JSON.
"""

import json
import socket
import time
from datetime import timedelta

import psutil
import torch
import torch.distributed as dist
import torch.multiprocessing as mp


def run(rank, port, created):
    """Be one of the 4 ranks."""
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=4, timeout=timedelta(seconds=30)
    )
    total = torch.ones(1)
    dist.all_reduce(total)
    assert total.item() == 4
    if rank == 0:
        print(json.dumps({"first all_reduce": time.time() - created}), flush=True)
    dist.barrier()  # rank 0 hosts the store: nobody may need it any more when it ends
    dist.destroy_process_group()


if __name__ == "__main__":
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    mp.spawn(run, args=(port, psutil.Process().create_time()), nprocs=4)
