"""Grading: the exercises of many learners, each judged by its check in a sandbox.

`python -m helpers.grade FOLDER` grades `FOLDER/NAME/NN_topic.ipynb` of every learner NAME. This package reads the
submissions (`submissions`, `exercises`), runs the answers in a sandbox (`sandbox` and `judging` outside; `runner`,
`plain` and `tampering` inside), and reports and keeps the verdicts (`report`, `keeping`). `helpers.checks` decides what
is right and wrong.
"""
