"""Settings of the Jupyter servers that `helpers.lab` prepares, which finds this folder by JUPYTER_CONFIG_PATH."""

from pathlib import Path

c = get_config()  # noqa: F821, Jupyter has it

c.MultiKernelManager.default_kernel_name = "torch-distributed-live"
# JupyterLab takes custom.css from the user's own folder of settings unless Tornado is told of another folder.
c.LabApp.custom_css = True
c.ServerApp.tornado_settings = {"static_custom_path": [str(Path(__file__).parent / "custom")]}
