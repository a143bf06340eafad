from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from knowledge_base import bought, open_store, prepared, put
from store_content import content_of

from embedkit.knowledge.searching.words import owned
from embedkit.knowledge.storing import documents, repositories, schema
from embedkit.knowledge.storing.prepared import PreparedDocument

pytestmark = pytest.mark.filterwarnings("ignore:unclosed database:ResourceWarning")


class Base:
    """A knowledge base in memory, and what it ought to hold: texts by repository and path."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self.connection = connection
        for step in schema.STEPS:
            connection.executescript(step) if isinstance(step, str) else step(connection)
        self.expected: dict[tuple[str, str, str], tuple[str, ...]] = {}

    def store(self, tenant: str, name: str, *wanted: PreparedDocument, buy: bool = True) -> list[PreparedDocument]:
        record = repositories.ensure(self.connection, tenant, name)
        if buy:
            texts = [part.chunk.text for document in wanted for part in document.chunks]
            documents.stage(self.connection, record.tenant_id, record.id, bought(texts))
        _, vanished = documents.switch(self.connection, record.tenant_id, record.id, wanted)
        for document in wanted:
            if document not in vanished:
                key = (tenant, name, document.path)
                self.expected[key] = tuple(part.chunk.text for part in document.chunks)
        return vanished

    def remove(self, tenant: str, name: str, *paths: str) -> int:
        record = repositories.ensure(self.connection, tenant, name)
        for path in paths:
            self.expected.pop((tenant, name, path), None)
        return documents.remove(self.connection, record.tenant_id, record.id, paths)

    def check(self) -> None:
        rows = self.connection.execute(
            """
            SELECT t.name, r.name, d.path, c.text FROM documents d
            JOIN repositories r ON r.id = d.repository_id JOIN tenants t ON t.id = r.tenant_id
            LEFT JOIN chunks c ON c.document_id = d.id ORDER BY d.id, c.ordinal
            """
        ).fetchall()
        held: dict[tuple[str, str, str], tuple[str, ...]] = {}
        for tenant, name, path, text in rows:
            held[tenant, name, path] = held.get((tenant, name, path), ()) + ((text,) if text is not None else ())
        assert held == self.expected
        # The index holds the words of what is there, and of nothing else.
        (held_rows,) = self.connection.execute("SELECT count(*) FROM words").fetchone()
        assert held_rows == sum(map(len, self.expected.values()))
        numbers = dict(self.connection.execute("SELECT name, id FROM tenants").fetchall())
        for tenant, word in ((tenant, word) for tenant in numbers for word in WORDS):
            expression = f'body : "{owned(numbers[tenant], word)}"'
            found = self.connection.execute("SELECT count(*) FROM words WHERE words MATCH ?", (expression,))
            texts = [text for key, held_texts in held.items() if key[0] == tenant for text in held_texts]
            assert found.fetchone()[0] == sum(word in text.split() for text in texts), word
        # Every vector is somebody's, and belongs to the tenant whose chunks it serves.
        unused = "SELECT count(*) FROM vectors v WHERE NOT EXISTS (SELECT 1 FROM chunks c WHERE c.vector_id = v.id)"
        assert self.connection.execute(unused).fetchone() == (0,)
        strange = "SELECT count(*) FROM chunks c JOIN vectors v ON v.id = c.vector_id WHERE v.tenant_id != c.tenant_id"
        assert self.connection.execute(strange).fetchone() == (0,)


@pytest.fixture
def base() -> Iterator[Base]:
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        yield Base(connection)


def chunk_ids(base: Base) -> list[int]:
    return [number for (number,) in base.connection.execute("SELECT id FROM chunks ORDER BY id")]


def vectors(base: Base) -> int:
    return int(base.connection.execute("SELECT count(*) FROM vectors").fetchone()[0])


def test_a_document_switches_from_its_old_chunks_to_its_new_ones(base: Base) -> None:
    base.store("a", "api", prepared("one.txt", "apple", "pear"), prepared("two.txt", "plum"))
    base.store("a", "api", prepared("one.txt", "apple", "fig", "fig"))
    base.check()


def test_what_old_and_new_chunks_both_hold_is_kept(base: Base) -> None:
    base.store("a", "api", prepared("one.txt", "apple", "pear"))
    # Nothing is bought: the switch itself must not let go of what it needs.
    assert base.store("a", "api", prepared("one.txt", "pear", "apple"), buy=False) == []
    base.check()


def test_a_document_whose_vector_has_vanished_stays_as_it_is_and_is_named(base: Base) -> None:
    base.store("a", "api", prepared("one.txt", "apple"))
    gone = prepared("one.txt", "pear")
    fine = prepared("two.txt", "apple")
    assert base.store("a", "api", gone, fine, buy=False) == [gone]
    base.check()


def test_a_vector_that_another_document_uses_is_kept_and_else_goes_with_its_last_chunk(base: Base) -> None:
    base.store("a", "api", prepared("one.txt", "apple", "pear"))
    base.store("a", "site", prepared("one.txt", "apple"))
    assert base.remove("a", "api", "one.txt") == 2
    base.check()
    assert vectors(base) == 1
    assert base.remove("a", "site", "one.txt", "never-there.txt") == 1
    base.check()
    assert vectors(base) == 0


def test_the_same_text_in_two_tenants_is_two_vectors(base: Base) -> None:
    base.store("a", "api", prepared("one.txt", "apple"))
    assert base.store("b", "api", prepared("one.txt", "apple"), buy=False) != []
    base.store("b", "api", prepared("one.txt", "apple"))
    base.remove("a", "api", "one.txt")
    base.check()
    assert vectors(base) == 1


def test_a_document_without_chunks_is_a_document(base: Base) -> None:
    base.store("a", "api", prepared("empty.txt"))
    base.check()
    base.store("a", "api", prepared("empty.txt", "apple"))
    base.store("a", "api", prepared("empty.txt"))
    base.check()
    assert vectors(base) == 0


def test_a_chunk_number_is_never_given_twice(base: Base) -> None:
    seen: set[int] = set()
    for turn in range(4):
        base.store("a", "api", prepared("one.txt", f"apple {turn}", "pear"))
        assert not seen & set(chunk_ids(base))
        seen.update(chunk_ids(base))
        if turn % 2:
            base.remove("a", "api", "one.txt")
    assert chunk_ids(base) == []


def test_more_documents_than_one_statement_takes(base: Base) -> None:
    many = [prepared(f"{number}.txt", f"apple {number}") for number in range(1203)]
    base.store("a", "api", *many)
    base.check()
    assert base.remove("a", "api", *(document.path for document in many)) == 1203
    base.check()


WORDS = ("apple", "pear", "plum", "fig")
TEXTS = st.lists(st.lists(st.sampled_from(WORDS), min_size=1, max_size=3).map(" ".join), max_size=3)
PLACES = st.tuples(st.sampled_from("ab"), st.sampled_from(["api", "site"]))
PATHS = st.sampled_from(["one.txt", "two.txt", "Ärger/ﬁne_nameOf.py"])


def put_document(place: tuple[str, str], path: str, texts: list[str], base: Base) -> None:
    base.store(*place, prepared(path, *texts, scope="Fruit.basket_ofParts"))


def reuse_document(place: tuple[str, str], path: str, texts: list[str], base: Base) -> None:
    base.store(*place, prepared(path, *texts), buy=False)


def remove_document(place: tuple[str, str], path: str, base: Base) -> None:
    base.remove(*place, path)


STEPS: st.SearchStrategy[Callable[[Base], None]] = st.one_of(
    st.builds(partial, st.sampled_from([put_document, reuse_document]), PLACES, PATHS, TEXTS),
    st.builds(partial, st.just(remove_document), PLACES, PATHS),
)


@given(st.lists(STEPS, max_size=12))
def test_whatever_is_stored_and_removed_the_tables_and_the_index_agree(steps: list[Callable[[Base], None]]) -> None:
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        base = Base(connection)
        for step in steps:
            step(base)
            base.check()


async def test_a_switch_that_fails_half_way_changes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "store.sqlite3"
    async with open_store(path) as store:
        await put(store, "a", "api", prepared("one.txt", "apple"))
        before = content_of(path)
        record = await store.repository("a", "api")
        lease = await store.lease(record)
        twice = prepared("two.txt", "pear")
        with pytest.raises(sqlite3.IntegrityError):  # the same path twice in one commit
            await store.commit(record, lease, bought(["fig", "pear"]), [prepared("one.txt", "fig"), twice, twice])
        await store.release(lease)
    assert content_of(path) == before
