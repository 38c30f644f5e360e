"""Grading: the exercises of many learners, each judged by its check, in a sandbox.

`python -m helpers.grade FOLDER` grades `FOLDER/NAME/NN_topic.ipynb` of every learner NAME. Here belongs what finds the
answers in a notebook, runs them where they can do no harm, and reports. What is right and wrong is for `helpers.checks`
to say.
"""
