"""Show a learner what the ranks do and have done: the `%%px` magics, the cells sent, the place of each rank.

This package asks ranks questions and shows their answers. It starts and ends no process, and counts no bytes.
"""
