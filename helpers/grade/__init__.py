"""Grading: the exercises of many learners, each judged by its check, in a sandbox.

`python -m helpers.grade FOLDER` grades `FOLDER/NAME/NN_topic.ipynb` of every learner NAME. This package reads what was
handed in (`submissions`, `exercises`), runs the answers where they can do no harm (`sandbox`, `judging` outside of it;
`runner`, `plain`, `tampering` inside), and reports (`report`, `keeping`). What is right and wrong is for
`helpers.checks` to say.
"""
