"""The server side. It decides which sites are averaged, and how; it never sees text."""

import sys
from pathlib import Path

# Flower unpacks the app and adds only its root to the path. Put the bundled library first, so that the run's code is used and
# not an older installed version. Inside a wheel there is no src/, so nothing is added.
_LIBRARY = Path(__file__).resolve().parent.parent / "src"
if _LIBRARY.is_dir() and str(_LIBRARY) not in sys.path:
    sys.path.insert(0, str(_LIBRARY))
