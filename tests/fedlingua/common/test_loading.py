"""The garbage collector is held off while much is loaded, and spared what was loaded."""

import gc

from fedlingua.common.loading import uncollected


def test_what_is_loaded_is_neither_collected_meanwhile_nor_looked_at_later():
    frozen = gc.get_freeze_count()
    try:
        with uncollected():
            loaded = [[number] for number in range(5000)]
            assert not gc.isenabled()
        assert gc.isenabled()
        assert gc.get_freeze_count() >= frozen + len(loaded)
    finally:
        gc.unfreeze()
