"""`%%px` for ranks, which shows outputs in the order of the ranks and passes an Interrupt on to the ranks."""

from contextlib import ExitStack, contextmanager, nullcontext

import ipyparallel as ipp
from ipyparallel.client.magics import ParallelMagics

from helpers.errors import WorldError
from helpers.look.tracebacks import Tracebacks, numbers
from helpers.look.waiting import Waiter, say_raised, say_who_died
from helpers.ranks.protocol import Ranks

_SECONDS_FOR_OUTPUT = 1


class RankMagics(ParallelMagics):
    """ipyparallel's magics for the ranks of one world.

    `cells` keeps the cells that are sent to the ranks, and `waiter` waits for the answers.
    """

    stream_output = False  # a stream shows output as it arrives, in an order that differs from run to run
    progress_after_seconds = -1

    def __init__(self, shell, world, ranks: Ranks, cells, waiter: Waiter):
        super().__init__(shell, world.view)
        shell.extension_manager.load_extension("helpers.look.slips")
        Tracebacks(world, ranks, cells).connect(shell)
        shell.configurables.remove(self)  # IPython keeps it there for %config, and so would keep the world alive
        self._world = world
        self._ranks = ranks
        self._cells = cells
        self._waiter = waiter

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
        if not (self.view.block if block is None else block):
            return self._send(targets, cell, save_name)
        stream = self.stream_output if stream_output is None else stream_output
        with ExitStack() as shown_meanwhile:

            def send():
                result = self._send(targets, cell, save_name)
                if stream:
                    shown_meanwhile.enter_context(result.stream_output())
                return result

            result, _ = self._waiter.send_and_wait(targets, send)
        result.wait_for_output(_SECONDS_FOR_OUTPUT)
        for rank, answer in zip(targets, result.metadata, strict=True):
            answer["engine_id"] = rank  # the number under which its output is shown
        if not stream:
            with _said_once(targets, result) if groupby == "type" else nullcontext():
                result.display_outputs(groupby)
        self._raise_errors(targets, result)

    def _send(self, targets, cell, save_name):
        result = super().parallel_execute(cell, block=False, save_name=save_name)
        self._cells.sent(targets, result.msg_ids)
        return result

    def _require_answering(self, targets):
        """Raise `WorldError` when one of these ranks is dead, or has not answered since an interrupt."""
        self._world.require_running()
        self._waiter.require_connection()
        if died := say_who_died(self._ranks, targets):
            raise WorldError(f"{died} {self._say_what_now(targets)}")
        self._waiter.require_answering(targets, "cell")

    def _raise_errors(self, targets, result):
        """Raise the errors of the ranks; if a rank died or skipped the cell, raise a `WorldError` that says so."""
        died = say_who_died(self._ranks, targets)
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
                say_raised(self._ranks.engine_ids.index(engine["engine_id"]), kind, text)
                for kind, text, _, engine in error.elist
                if kind != "EngineError"
            ]
            raise WorldError("\n".join([died, *others, self._say_what_now(targets)])) from None

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
