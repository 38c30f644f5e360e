"""The figure of 08_data_parallel: the loss of one process and that of the ranks."""

from collections.abc import Sequence

from helpers.plots.style import MEASURED, MODEL, new_axes


def loss_curves(one_process: Sequence[float], mean: Sequence[float], by_rank: Sequence[Sequence[float]]) -> None:
    """Draw the loss at every step: of one process, the mean of all ranks, and of each rank on its own share."""
    axes = new_axes("The mean loss of the ranks is that of one process", height=3.2)
    for rank, losses in enumerate(by_rank):
        axes.plot(losses, color="#BBBBBB", linewidth=1, label="" if rank else "each rank on its share")
    axes.plot(one_process, label="one process, the global batch", **MODEL)
    axes.plot(mean, label="mean of the ranks", markevery=max(1, len(mean) // 30), **MEASURED)
    axes.set_xlabel("step (number of global batches)")
    axes.set_ylabel("loss (cross-entropy)")
    axes.set_ylim(bottom=0)
    axes.legend(frameon=False)
