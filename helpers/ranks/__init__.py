"""Start ranks quickly, connect them with each other and with the notebook, and end them with the notebook.

The modules here create and remove processes, sockets and files; `helpers.probe` has what a rank reports about itself.
The notebook imports most of these modules, too, so they import torch inside the functions that only other processes
call.
"""
