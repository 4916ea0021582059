"""README and the pages below docs/, and the code blocks that tests take from them."""

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
README = ROOT / "README.md"
PAGES = [README, *sorted((ROOT / "docs").rglob("*.md"))]
FENCED = re.compile(r"^```([^\n`]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def blocks(page: Path) -> list[tuple[str, str]]:
    """(What stands behind the opening fence, the code) of every fenced block."""
    return FENCED.findall(page.read_text(encoding="utf-8"))


def block(page: str, info: str) -> str:
    """The code of the only block of a page whose fence says `info`. page: relative to the root."""
    (code,) = [code for said, code in blocks(ROOT / page) if said == info]
    return code
