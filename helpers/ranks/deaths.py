"""The deaths of ranks on this machine: what the host tells of them is noted, and passed on to the controller."""

import signal
from contextlib import suppress
from multiprocessing.connection import Connection

import zmq
from jupyter_client.session import Session


def note_deaths(
    deaths_of_ranks: Connection, size: int, deaths: dict[int, str], heard: list[int], connection_info: dict
) -> None:
    """Note in `deaths` what ends each rank, and tell the controller, so that nobody goes on waiting for the rank.

    `deaths_of_ranks` receives the rank and its exit code; it ends with the host, and then all `size` ranks have ended.
    `heard` gets each rank whose death has been noted. `connection_info` is what engines know of the controller.
    """
    session = Session(
        key=connection_info["key"].encode(),
        signature_scheme=connection_info["signature_scheme"],
    )
    with suppress(EOFError, OSError):
        while True:
            rank, exitcode = deaths_of_ranks.recv()
            deaths[rank] = _cause(exitcode)
            _report_death(session, connection_info, rank)
            heard.append(rank)
    for rank in range(size):
        if rank not in deaths:
            deaths[rank] = "its host has ended"
            _report_death(session, connection_info, rank)


def _report_death(session, connection_info, engine_id):
    """Send the controller the message that ipyparallel's nanny process sends when its engine has died."""
    with zmq.Context.instance().socket(zmq.DEALER) as registrar:
        registrar.linger = 1000
        registrar.connect(f"{connection_info['interface']}:{connection_info['registration']}")
        session.send(registrar, "unregistration_request", content={"id": engine_id})


def _cause(exitcode):
    if exitcode >= 0:
        return f"exit code {exitcode}"
    try:
        return signal.Signals(-exitcode).name
    except ValueError:  # a real-time signal has no name
        return f"signal {-exitcode}"
