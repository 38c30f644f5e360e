"""The only exception class of the course's own code."""


class WorldError(Exception):
    """A problem with a world that the learner can fix; the message says how.

    A notebook shows only its message, without the lines of the helpers that raised it.
    """

    def _render_traceback_(self):  # IPython calls this
        return [f"{type(self).__name__}: {self}"]
