"""A process that runs a script as a rank under torchrun would."""

import os
import runpy
import sys


def run(path, rank: int, ranks: int, port: int, log) -> None:
    """Run the script in this process, which has imported torch already; what it prints goes to the file `log`."""
    file = os.open(log, os.O_WRONLY | os.O_CREAT, 0o600)
    os.dup2(file, 1)
    os.dup2(file, 2)
    os.environ.update(
        RANK=str(rank),
        WORLD_SIZE=str(ranks),
        LOCAL_RANK=str(rank),
        LOCAL_WORLD_SIZE=str(ranks),
        GROUP_RANK="0",
        MASTER_ADDR="127.0.0.1",
        MASTER_PORT=str(port),
        TORCHELASTIC_USE_AGENT_STORE="True",
    )
    import torch

    torch.seed()  # a process of its own has random numbers of its own
    sys.argv = [str(path)]
    runpy.run_path(str(path), run_name="__main__")
