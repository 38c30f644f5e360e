"""What a rank reports about itself: its stacks, calls and their arguments, connections, variables and last error.

The functions run on the rank. `side_channel` carries the question to it and the answer back, even while a cell hangs.
`helpers.look` shows the answers. The notebook imports most of these modules, too, so they import torch inside the
functions that only ranks call.
"""
