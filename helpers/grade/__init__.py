"""Grading: the exercises of many learners, each judged by its check in a sandbox.

`python -m helpers.grade FOLDER` grades `FOLDER/NAME/NN_topic.ipynb` of every learner NAME. This package reads the
submissions (`submissions`, `exercises`), and reports and keeps the verdicts (`report`, `keeping`). `sandbox` and
`judging` start the sandbox in which the answers run; `runner`, `outside`, `plain` and `tampering` work inside it.
`helpers.checks` decides what is right and wrong.
"""
