"""The Flower ClientApp and everything else that runs at the nodes, which host the sites. A site's text does not leave its node."""

import sys
from pathlib import Path

# A node unpacks the app and adds only its root to the path. Put the bundled library first, so that a node runs the run's code and
# not an older installed version. Inside a wheel there is no src/, so nothing is added.
_LIBRARY = Path(__file__).resolve().parent.parent / "src"
if _LIBRARY.is_dir() and str(_LIBRARY) not in sys.path:
    sys.path.insert(0, str(_LIBRARY))
