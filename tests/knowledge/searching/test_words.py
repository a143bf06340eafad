# ruff: noqa: RUF001  # letters of other scripts are what this is about
from __future__ import annotations

import re
import sqlite3
import unicodedata
from collections.abc import Iterator
from contextlib import closing

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from embedkit.knowledge.searching.words import MAX_TERMS, TOKENIZE, embedding_input, index_words, match_expression


class Index:
    """A real FTS5 table, filled and asked as a store would."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self.connection = connection
        connection.execute(f'CREATE VIRTUAL TABLE words USING fts5(body, tokenize = "{TOKENIZE}")')

    def add(self, text: str) -> None:
        self.connection.execute("INSERT INTO words(body) VALUES (?)", (index_words(text),))

    def find(self, query: str) -> list[str]:
        expression = match_expression(query)
        if expression is None:
            return []
        rows = self.connection.execute("SELECT body FROM words WHERE words MATCH ? ORDER BY rank", (expression,))
        return [body for (body,) in rows]


@pytest.fixture
def index() -> Iterator[Index]:
    with closing(sqlite3.connect(":memory:")) as connection:
        yield Index(connection)


@pytest.fixture(scope="module")
def shared() -> Iterator[Index]:
    with closing(sqlite3.connect(":memory:")) as connection:
        index = Index(connection)
        index.add("def parse_date(text): ...")
        yield index


# What FTS5 gives a meaning to, mixed with anything at all.
queries = st.one_of(
    st.text(),
    st.lists(st.sampled_from([*"\"*^:(){}+-,'\0 \n_", "AND", "OR", "NOT", "NEAR", "body", "²", "aB", "\ud800"])).map(
        "".join
    ),
)


@settings(deadline=None)
@given(queries)
@example('"')
@example("NEAR(a b, 2) AND NOT body : x*")
@example("²")
@example(" ".join(f"word{number}" for number in range(5_000)))
def test_no_query_is_a_syntax_error(shared: Index, query: str) -> None:
    shared.find(query)


@given(st.text())
def test_a_query_has_no_expression_exactly_when_it_has_no_letter_or_digit(query: str) -> None:
    normal = re.sub("[\u0300-\u036f]", "", unicodedata.normalize("NFKD", query))
    assert (match_expression(query) is None) == (not any(character.isalnum() for character in normal))


@settings(deadline=None)
@given(st.lists(st.from_regex(r"[a-z]{4,9}", fullmatch=True), min_size=1, max_size=6))
def test_a_text_is_found_by_any_of_its_words(words: list[str]) -> None:
    with closing(sqlite3.connect(":memory:")) as connection:
        index = Index(connection)
        index.add("_".join(words))
        index.add(words[0] + "".join(word.title() for word in words[1:]))
        assert all(len(index.find(word)) == 2 for word in words)


@given(st.text(st.characters(max_codepoint=0x2E7F, exclude_categories=["Cs"])))
def test_what_is_indexed_is_the_same_in_each_normal_form(text: str) -> None:
    forms = {index_words(unicodedata.normalize(form, text)) for form in ("NFC", "NFD", "NFKC", "NFKD")}
    assert len(forms) == 1


@pytest.mark.parametrize(
    ("text", "cut"),
    [
        ("parseDate", "parse Date parseDate"),
        ("HTTPServer", "HTTP Server HTTPServer"),
        ("load_json", "load json"),
        ("__init__", "  init  "),
        ("utf8Decoder", "utf8 Decoder utf8Decoder"),
        ("MAX_SIZE", "MAX SIZE"),
        ("utf_8", "utf 8 utf8"),
        ("getX", "get X getX"),
        ("Plain text.", "Plain text."),
        ("a_b, cD", "a b, c D cD"),
        ("my_HTTPServer", "my HTTP Server HTTPServer"),
        ("utf_8_sig, x_86", "utf 8 sig, x 86 x86"),
        ("x_" * 40, "x " * 40),
    ],
)
def test_identifiers_are_cut_at_case_and_underscore_and_stand_whole_beside(text: str, cut: str) -> None:
    assert index_words(text) == cut


@pytest.mark.parametrize(
    ("query", "text"),
    [
        ("parse dates", "def parse_date(s): ..."),
        ("parsed", "parsing"),
        ("HTTPServer", "class http_server: ..."),
        ("time out", "socket.timeout"),
        ("café", "CAFE"),
        ("of the", "the end of it"),
        # kody#1951: text search missed them, and hybrid too
        ("javascript", "a JavaScript engine"),
        ("sqlite", "class SQLite: ..."),
        ("postgresql", "PostgreSQL"),
        ("utf8", "def utf_8(): ..."),
        ("Sqlite", "open_sqlite3(SQLite)"),
        # qmd#966, crawlkit#37, cortex#51
        ("cafe\u0301", "caf\u00e9"),
        ("caf\u00e9", "cafe\u0301"),
        ("tiếng việt", unicodedata.normalize("NFD", "Tiếng Việt")),
        ("ΕΛΛΗΝΙΚΑ", "ελληνικά"),
        ("ελληνικα", unicodedata.normalize("NFD", "Ελληνικά")),
        ("हिन्दी", "यह हिन्दी है"),
        ("检索", "全文检索引擎"),
        ("引擎", "全文检索引擎"),
        ("全", "全文检索"),
        ("索", "全文检索"),
        ("検索エンジン", "全文検索エンジンです"),
        ("검색", "전문검색엔진"),
        ("ＨＴＴＰ", "http"),
    ],
)
def test_what_a_person_asks_finds_what_code_says(index: Index, query: str, text: str) -> None:
    index.add("nothing alike")
    index.add(text)
    assert index.find(query) == [index_words(text)]


def test_stop_words_find_nothing_beside_other_words(index: Index) -> None:
    index.add("the end of it")
    index.add("a date")
    assert index.find("the date of it") == ["a date"]


def test_an_identifier_prefers_its_parts_side_by_side(index: Index) -> None:
    index.add("date of birth, which we parse")
    index.add("we parse_date here, which it is")
    assert index.find("parse_date")[0] == "we parse date here, which it is"


def test_a_pasted_page_is_cut() -> None:
    expression = match_expression(" ".join(f"word{number}" for number in range(1_000)))
    assert expression is not None
    assert expression.count(" OR ") == MAX_TERMS - 1


def test_an_embedder_is_given_the_scope_and_the_text_as_they_stand() -> None:
    assert embedding_input("Calendar.formatyear", "    def f(): ...\n") == "Calendar.formatyear\n    def f(): ...\n"
    assert embedding_input("", "text") == "text"
