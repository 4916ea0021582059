"""A short federation of four sites in which two may fail."""

import pytest


@pytest.fixture
def config(four_sites):
    # Honest updates of these sites differ by less than a factor of two.
    return {**four_sites, "method": "adapter-fed", "quorum": 0.5, "rounds": 2, "max-update-ratio": 5.0}
