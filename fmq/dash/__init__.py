"""Pages about an engine for a browser, as an application of ASGI: what is stuck, why, since when,
and who holds it. They call an engine as any program does. `fmq dash DIR` serves them.
"""

from fmq.dash.dash_app import DashApp, router

__all__ = ["DashApp", "router"]
