"""JupyterHub for a class on one host: each learner is a user of the system, with the course in the home folder.

Run by root, in the environment in which the course is installed: jupyterhub -f jupyterhub_config.py
"""

import sys

from helpers.course import FIRST

c = get_config()  # noqa: F821, JupyterHub has it

c.JupyterHub.bind_url = "http://127.0.0.1:8000"  # behind a proxy of yours that speaks TLS
c.JupyterHub.spawner_class = "localprocess"
c.JupyterHub.authenticator_class = "pam"
c.Authenticator.allow_all = True  # whoever has a password on this host

# As the learner, in the learner's home folder: bring the copy of the notebooks up to date, and become the server.
SERVER = "from helpers import lab; lab.prepare(); from jupyterhub.singleuser import main; main()"
c.Spawner.cmd = [sys.executable, "-c", SERVER]
c.Spawner.default_url = f"/lab/tree/notebooks/{FIRST}"
