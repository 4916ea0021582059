"""The Flower ClientApp and all that runs at the nodes: they host the sites, whose text does not leave them."""

import sys
from pathlib import Path

# A node unpacks the app and puts only its root on the path. The library beside this package goes first, so that a node runs the
# code of the run, not of its last install. Inside a wheel there is no src/ and nothing happens.
_LIBRARY = Path(__file__).resolve().parent.parent / "src"
if _LIBRARY.is_dir() and str(_LIBRARY) not in sys.path:
    sys.path.insert(0, str(_LIBRARY))
