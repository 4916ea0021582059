"""The demo's backbone and text. They are installed with fedlingua, not bundled, so every machine has the same weights.

`phrasebook` is the grammar that generates its text. `backbone/` is a tiny M2M-100 (1.1 M parameters, half precision) trained
by fedlingua.desk.pretraining.demo on the phrasebook's base register.
"""

from pathlib import Path

BACKBONE = Path(__file__).parent / "backbone"
