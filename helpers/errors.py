"""The one exception of the course's own code."""


class WorldError(Exception):
    """Something about a world that the learner can put right; the message says how.

    In a notebook it shows as its message, without the lines of the helpers that raised it.
    """

    def _render_traceback_(self):  # IPython asks for this
        return [f"{type(self).__name__}: {self}"]
