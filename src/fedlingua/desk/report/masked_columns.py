"""Columns of a suite's table.csv that only masked-language rows have, besides those of perplexity."""

MACRO_ACCURACY = "macro_accuracy"
ACCURACY_OF, PARTS_OF, PARTS_SD_OF = "accuracy of ", "parts of ", "sd of parts of "
"""Before a site's name. No site's own column begins so, as no site's name holds a space."""


def is_masked_column(column: str) -> bool:
    """Whether a column tells such a thing, and so is no site."""
    return column == MACRO_ACCURACY or column.startswith((ACCURACY_OF, PARTS_OF, PARTS_SD_OF))
