"""What holds of every file, whatever stands in it: pairs are kept or dropped, none is shifted, and what is wrong is one CorpusError."""

import pytest
from hypothesis import given, settings

from benchmarks.generated_corpora import Generated, generated, holds
from fedlingua.corpora.formats import FILE_FORMATS

SLOW = {"dataset": 5}
"""The library behind it takes a tenth of a second to look at a folder."""


@pytest.mark.parametrize("kind", [kind for kind in FILE_FORMATS if kind != "csv"])  # which the generator does not write
def test_every_generated_corpus_is_accounted_for_or_refused(kind: str) -> None:
    @settings(max_examples=SLOW.get(kind, 60))
    @given(generated(kind))
    def check(case: Generated) -> None:
        assert holds(case) in ("read", "refused")

    check()
