"""Programs that measure speed and memory: `python benchmarks/NAME.py` or `python -m benchmarks.NAME`. They import each other by name."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
