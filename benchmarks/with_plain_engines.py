"""One fresh process that starts 4 engines as ipyparallel does by itself, and imports torch in each.

Prints the MiB of memory that all of it takes as the last line, in JSON.
"""

import json
import logging
import tempfile

import ipyparallel as ipp
import psutil

if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as directory:
        cluster = ipp.Cluster(n=4, profile_dir=directory, log_level=logging.ERROR)
        with cluster as client:
            client[:].execute("import torch.distributed", block=True)
            everything = psutil.Process().children(recursive=True)
            memory = sum(process.memory_full_info().pss for process in everything) / 2**20
    print(json.dumps({"memory": memory}))
