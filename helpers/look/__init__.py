"""What the ranks do and have done, as a learner sees it: the `%%px` magics, the cells sent, the place of each rank.

Here belongs what asks a rank and what shows its answer. Nothing here starts or ends a process, or counts bytes.
"""
