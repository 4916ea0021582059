"""What becomes of a site's documents before they are used: de-identified, split into sentences, cleaned; each sentence accounted for.

A sentence of text in one language is a pair of itself with itself, so that all that reads pairs reads it too.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from fedlingua.common.errors import CorpusError
from fedlingua.common.languages import Direction
from fedlingua.corpora.clean import Account, CleaningRules, judge, normalized, usable
from fedlingua.corpora.deidentify import Failure, deidentify
from fedlingua.corpora.read import Pair
from fedlingua.corpora.sentences import split_sentences
from fedlingua.corpora.split_documents import Document


def take_in(
    documents: Iterable[str],
    language: Direction,
    rules: CleaningRules,
    hook: Callable[[str], Any] | None,
    account: Account,
    where: str,
) -> list[Document]:
    """The documents of which something is left, as the hook leaves them, with the sentences that every rule keeps.

    A repeated sentence is dropped wherever in the documents it stands. A document that the hook fails on is counted by the type of
    failure, and its raw text's sentences as not-deidentified; nothing of it is used.

    Raises:
        CorpusError: the hook fails on every document, with the types of its failures, never their words; or a sentence would be dropped
            where `rules` are strict.
    """
    against, failures, passed = judge(language, rules, where), account.failed_documents, 0
    taken = []
    for raw in documents:
        text = deidentify(raw, hook) if hook else raw
        if isinstance(text, Failure):
            failures[text.kind] = failures.get(text.kind, 0) + 1
            account.leave_out("not-deidentified", len(split_sentences(raw, language.source, rules.max_words)))
            continue
        passed += 1
        found = (Pair(sentence, sentence) for sentence in split_sentences(text, language.source, rules.max_words))
        if sentences := list(usable(normalized(found, rules), against, account)):
            taken.append(Document(text, sentences))
    if failures and not passed:
        kinds = failures_told(failures)
        raise CorpusError(
            f"{where}: deidentify-with failed on all of {sum(failures.values())} documents ({kinds}); try it on one of them"
        )
    return taken


def failures_told(failures: Mapping[str, int]) -> str:
    """Types of failure with how many documents each, for people."""
    return ", ".join(f"{kind} {count}" for kind, count in sorted(failures.items()))
