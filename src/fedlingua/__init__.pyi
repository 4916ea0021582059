from fedlingua.desk.api import *  # noqa: F403
from fedlingua_lab.api import *  # noqa: F403

__version__: str
