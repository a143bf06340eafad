"""Words: what the full-text index is given, how it is asked, and what an embedder is given. Pure.

Code hides its words in identifiers: ``formatyear``, ``parse_date``, ``HTTPServer``. A person asks with plain words.
So identifiers are cut where their case changes and at underscores, on both sides, and SQLite's FTS5 does the rest:
``porter`` joins *parses*, *parsed* and *parsing*, and ``unicode61`` folds case and accents.

The choices were made on 8 x 1,000 functions of Python's standard library (query: the first line of a docstring;
right: its function without the docstring). Mean reciprocal rank of full text alone, the symbol empty and given:

============================================  =====  =====
whole identifiers, every word of the query     .478   .535
identifiers cut                                .495   .571
identifiers cut, stemmed                       .511   .589
cut, stemmed, no stop words                    .541   .615
and neighbours joined, so that ``time out``    .549   .625
finds ``timeout``
and an identifier of the query as a phrase     .550   .626
============================================  =====  =====

Tried and left out: whole identifiers beside their parts (.005 either way), phrases of neighbouring words and each word
of a chunk once (both lower), prefixes (.005 to .010 higher, but each walks a stretch of the whole vocabulary).
"""

from __future__ import annotations

import re
from itertools import pairwise

TOKENIZE = "porter unicode61 remove_diacritics 2"
"""The ``tokenize`` option of the FTS5 table."""

MAX_TERMS = 64
"""Terms of a query that are looked up; a pasted page is cut here, since each term is a walk over its own postings."""

# An upper-case letter that begins a new part: after a lower-case letter or digit (parseDate), or as the last of a row
# of capitals before a lower-case letter (HTTPServer). It starts with the letter, and looks back afterwards: the
# engine skips to capitals, which is 6 times as fast as looking back at every position.
_PART = re.compile(r"[A-Z](?:(?<=[a-z0-9][A-Z])|(?<=[A-Z][A-Z])(?=[a-z]))")

_WORD = re.compile(r"[^\W_]+")
_IDENTIFIER = re.compile(r"\w+")

# Words of English grammar. Code's own (``return``, ``class``) stay: BM25 sees for itself how common they are.
_STOP_WORDS = frozenset(
    _WORD.findall("a an and are as at be by for from has have if in is it its not of on or that the this to was with")
)


def index_words(text: str) -> str:
    """The text as the full-text index is given it: identifiers cut into their parts, everything else as it stands.

    ``parseDate HTTPServer load_json`` becomes ``parse Date HTTP Server load json``. Case, accents and punctuation are
    left to FTS5, which drops them faster than we could.
    """
    return _PART.sub(_set_apart, text).replace("_", " ")


def _set_apart(letter: re.Match[str]) -> str:
    # Twice as fast as a template, which Python 3.11 fills in by itself, in Python.
    return " " + letter[0]


def tenant_word(tenant_id: int) -> str:
    """A tenant's own word in the full-text index."""
    return f"t{tenant_id}"


def match_expression(query: str) -> str | None:
    """An FTS5 ``MATCH`` expression that finds what shares any word with ``query``, or ``None`` if it has no words.

    Every term is quoted, so nothing in a query is read as FTS5's own syntax. An identifier of several parts is also
    looked for as a phrase, and neighbouring words are also looked for joined. Stop words are left out unless there is
    nothing else.
    """
    words = [word.lower() for word in _WORD.findall(index_words(query))]
    words = [word for word in words if word not in _STOP_WORDS] or words
    joined = [first + second for first, second in pairwise(words)]
    terms = list(dict.fromkeys([*words, *_phrases(query), *joined]))[:MAX_TERMS]
    return " OR ".join(f'"{term}"' for term in terms) or None


def _phrases(query: str) -> list[str]:
    """The parts of each identifier that has more than one, as one phrase."""
    parts = (_WORD.findall(index_words(name)) for name in _IDENTIFIER.findall(query))
    return [" ".join(part).lower() for part in parts if len(part) > 1]


def embedding_input(scope: str, text: str) -> str:
    """What an embedder is given for a chunk: a line with what encloses it, then the chunk as it stands.

    It does not depend on the path, so that a renamed file is not bought again. The scope line lifts vectors alone
    from .404 to .473 on the corpus above.
    """
    return f"{scope}\n{text}" if scope else text
