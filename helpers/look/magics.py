"""`%%px` for ranks, which shows outputs in the order of the ranks and passes an Interrupt on to the ranks."""

from contextlib import contextmanager, nullcontext, suppress

import ipyparallel as ipp
from ipyparallel.client.magics import ParallelMagics

from helpers.errors import WorldError
from helpers.look.tracebacks import Tracebacks, numbers
from helpers.look.where import NO_CONNECTION
from helpers.ranks.protocol import Ranks

_SECONDS_BETWEEN_LOOKS = 0.5
_SECONDS_FOR_OUTPUT = 1
_SECONDS_AFTER_INTERRUPT = 1
_SECONDS_TO_ANSWER = 5


class RankMagics(ParallelMagics):
    """ipyparallel's magics for the ranks of one world.

    `cells` keeps the cells that are sent to the ranks.
    """

    stream_output = False  # a stream shows output as it arrives, in an order that differs from run to run
    progress_after_seconds = -1

    def __init__(self, shell, world, ranks: Ranks, cells):
        super().__init__(shell, world.view)
        shell.extension_manager.load_extension("helpers.look.slips")
        Tracebacks(world, ranks, cells).connect(shell)
        shell.configurables.remove(self)  # IPython keeps it there for %config, and so would keep the world alive
        self._world = world
        self._ranks = ranks
        self._cells = cells
        self._stuck = {}  # rank: id of the message that an interrupt did not end

    def _eval_target_str(self, ts):
        """Return the engine ids of the ranks that `--targets` names."""
        everybody = range(self._world.size)
        chosen = everybody if "all" in ts else eval(f"ranks[{ts}]" if ":" in ts else ts, {"ranks": everybody})
        chosen = [chosen] if isinstance(chosen, int) else list(chosen)
        there_are = f"the ranks of this world are 0 to {self._world.size - 1}."
        if not chosen:
            raise WorldError(f"`--targets {ts}` names no rank: {there_are}")
        for rank in chosen:
            if rank not in everybody:
                raise WorldError(f"There is no rank {rank}: {there_are}")
        return [self._ranks.engine_ids[rank] for rank in chosen]

    def parallel_execute(
        self,
        cell,
        block=None,
        groupby="type",
        save_name=None,
        stream_output=None,
        progress_after=None,
        signal_on_interrupt=None,
    ):
        """Run a cell on the ranks that the view targets; see `ParallelMagics.parallel_execute`."""
        targets = [self._ranks.engine_ids.index(engine_id) for engine_id in self.view.targets]
        self._require_answering(targets)
        self._cells.remember(cell)
        result = super().parallel_execute(cell, block=False, save_name=save_name)
        self._cells.sent(targets, result.msg_ids)
        if not (self.view.block if block is None else block):
            return result
        stream = self.stream_output if stream_output is None else stream_output
        try:
            with result.stream_output() if stream else nullcontext():
                self._wait(result)
        except KeyboardInterrupt:
            self._interrupt(targets, result)
        result.wait_for_output(_SECONDS_FOR_OUTPUT)
        for rank, answer in zip(targets, result.metadata, strict=True):
            answer["engine_id"] = rank  # the number under which its output is shown
        if not stream:
            with _said_once(targets, result) if groupby == "type" else nullcontext():
                result.display_outputs(groupby)
        self._raise_errors(targets, result)

    def _require_answering(self, targets):
        """Raise `WorldError` when one of these ranks is dead, or has not answered since an interrupt."""
        self._world.require_running()
        self._require_connection()
        if died := self._say_who_died(targets):
            raise WorldError(f"{died} {self._say_what_now(targets)}")
        unanswered = self._cells.messages()
        self._stuck = {rank: message for rank, message in self._stuck.items() if message in unanswered}
        if stuck := sorted(self._stuck.keys() & targets):
            raise WorldError(
                f"This cell was not run: {_say_ranks(stuck)} still in the call that the interrupt did not end.\n\n"
                f"{self._world.where()!r}\n\n"
                "Run the cell again when the call has come to its timeout, or call world.restart()."
            )

    def _wait(self, result):
        while not result.wait(_SECONDS_BETWEEN_LOOKS):
            self._require_connection()

    def _require_connection(self):
        """Raise `WorldError` when the process that carries the messages has died, because no answer would arrive."""
        if not self._ranks.is_connected():
            raise WorldError(NO_CONNECTION)

    def _interrupt(self, targets, result):
        """Interrupt the ranks that have not answered yet.

        If some ranks are still stuck, show the output of the other ranks, and raise `WorldError` with the place of
        every rank and the errors of the other ranks, because one of these errors may be the cause.
        """
        self._stuck = dict(zip(targets, result.msg_ids, strict=True))
        with suppress(KeyboardInterrupt):  # pressed again
            self._world.interrupt()
            answered = result.wait(_SECONDS_AFTER_INTERRUPT)
            if not answered and any(s.state == "busy" and s.line_number is None for s in self._world.where()):
                result.wait(_SECONDS_TO_ANSWER)  # a rank has left the cell, and is about to send its error
        unanswered = self._cells.messages()
        stuck = [rank for rank, message in self._stuck.items() if message in unanswered]
        if not stuck:
            return
        errors = []
        for rank, answer in zip(targets, result.metadata, strict=True):
            if rank not in stuck and answer["stdout"]:
                print(f"[stdout:{rank}]\n{answer['stdout']}", end="")
            if rank not in stuck and answer["error"] and answer["error"].ename != "KeyboardInterrupt":
                errors.append(_say_raised(rank, answer["error"].ename, answer["error"].evalue))
        raise WorldError(
            f"Interrupted, but {_say_ranks(stuck)} inside a call that an interrupt does not reach.\n\n"
            + "\n".join([f"{self._world.where()!r}\n", *errors])
            + "\nCall world.restart() for working ranks, or wait until the call comes to its timeout."
        )

    def _raise_errors(self, targets, result):
        """Raise the errors of the ranks; if a rank died or skipped the cell, raise a `WorldError` that says so."""
        died = self._say_who_died(targets)
        answers = zip(targets, result.metadata, strict=True)
        if skipped := [rank for rank, answer in answers if answer["status"] == "aborted"]:
            raise WorldError(
                f"This cell did not run on rank {', '.join(map(str, skipped))}: it had to wait for an earlier cell, "
                "which ended in an error there. See that error with `answer.get()`, and run this cell again."
            )
        try:
            result.get()
        except ipp.CompositeError as error:
            if not died:
                raise
            others = [
                _say_raised(self._ranks.engine_ids.index(engine["engine_id"]), kind, text)
                for kind, text, _, engine in error.elist
                if kind != "EngineError"
            ]
            raise WorldError("\n".join([died, *others, self._say_what_now(targets)])) from None

    def _say_who_died(self, targets):
        deaths = self._ranks.deaths()
        return " ".join(f"Rank {rank} has died ({deaths[rank]})." for rank in targets if rank in deaths)

    def _say_what_now(self, targets):
        """Return what to do when ranks have died, and the last output of the ranks that crashed."""
        outputs = {rank: self._ranks.last_words(rank) for rank in targets}
        last_words = [f"Rank {rank} wrote before it died:\n{outputs[rank]}" for rank in outputs if outputs[rank]]
        return "\n".join(["Call world.restart() for working ranks.", *last_words])


@contextmanager
def _said_once(ranks, result):
    """Print output that is the same on every rank once, under the numbers of all ranks.

    `%%px` with `-e` shows the output of each rank separately.
    """
    texts = [answer["stdout"] for answer in result.metadata]
    if len(texts) == 1 or not texts[0] or len(set(texts)) > 1:
        yield
        return
    print(f"[stdout:{numbers(ranks)}] \n{texts[0]}", end="")
    for answer in result.metadata:
        answer["stdout"] = ""
    try:
        yield
    finally:  # `--out` needs the output of each rank
        for answer in result.metadata:
            answer["stdout"] = texts[0]


def _say_ranks(ranks):
    if len(ranks) == 1:
        return f"rank {ranks[0]} is"
    return f"ranks {', '.join(map(str, ranks[:-1]))} and {ranks[-1]} are"


def _say_raised(rank, kind, text):
    return f"Rank {rank} raised {kind}: {text.splitlines()[0] if text else ''}"
