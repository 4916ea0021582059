"""The demo's backbone and federation. Installed beside fedlingua and in no bundle, so that every machine has the same weights.

`phrasebook` is the grammar that its text comes from. `backbone/` is a tiny M2M-100 (1.1 M numbers, half precision) that
fedlingua.desk.pretraining.demo trains on the phrasebook's base register. `federation.toml` names nine sites of its other registers.
"""

from pathlib import Path

BACKBONE = Path(__file__).parent / "backbone"
FEDERATION = Path(__file__).parent / "federation.toml"
