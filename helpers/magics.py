"""`%%px` for ranks: output in the order of the ranks, and an Interrupt that says where every rank is."""

from contextlib import nullcontext

from ipyparallel.client.magics import ParallelMagics

_SECONDS_FOR_OUTPUT = 1


class RankMagics(ParallelMagics):
    """ipyparallel's magics, for the ranks of one world."""

    stream_output = False  # a stream shows output as it arrives, in an order that differs from run to run
    progress_after_seconds = -1
    signal_on_interrupt = None  # `World.interrupted` sends it

    def __init__(self, shell, world):
        super().__init__(shell, world.view)
        self.world = world

    def _eval_target_str(self, ts):
        """Turn `--targets`, which names ranks, into the ids of their engines."""
        ranks = range(self.world.size)
        chosen = list(ranks) if "all" in ts else eval(f"ranks[{ts}]" if ":" in ts else ts, {"ranks": ranks})
        return self.world.engine_ids([chosen] if isinstance(chosen, int) else chosen)

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
        ranks = self.world.ranks(self.view.targets)
        self.world.require_answering(ranks)
        self.world.sources.remember(cell)
        result = super().parallel_execute(cell, block=False, save_name=save_name)
        self.world.sent(ranks, result)
        if not (self.view.block if block is None else block):
            return result
        stream = self.stream_output if stream_output is None else stream_output
        try:
            with result.stream_output() if stream else nullcontext():
                result.wait()
        except KeyboardInterrupt:
            self.world.interrupted(ranks, result)
        result.wait_for_output(_SECONDS_FOR_OUTPUT)
        try:
            self.world.finished(ranks, result)
        finally:
            if not stream:
                result.display_outputs(groupby)
        result.get()
