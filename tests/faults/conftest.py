"""A short federation of four sites in which two may fail."""

import pytest


@pytest.fixture
def config(four_sites):
    return {**four_sites, "method": "adapter-fed", "quorum": 0.5, "rounds": 2}
