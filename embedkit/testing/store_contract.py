"""The store suite as a pytest class: what a knowledge base of any kind owes to indexing, to sweeps and to search."""

from __future__ import annotations

import tempfile
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from functools import partial
from pathlib import Path
from typing import Any

import attrs
import trio

from embedkit import (
    Clocks,
    Last,
    Leased,
    Sighting,
    Space,
    SpaceMismatch,
    Store,
    UsageError,
)
from embedkit.testing.steps import cancelled_after
from embedkit.testing.store_content import DIMENSION, GENERATION, Shelf, document, found, hash_of, unit, vectors_for

_SECONDS = 30.0


class StoreContract:
    """One test a duty, for a store of yours. Name the subclass ``Test...``, and say how the store is opened.

    ::

        class TestMyStore(StoreContract):
            def open_store(self, folder):
                return my_store(folder / "knowledge")

    What is made is an async context manager that gives the store. Each test has a folder of its own: a store that is
    opened there for the first time is empty, and one that is opened there again holds what it held. Vectors have 8
    numbers. Each failure is a sentence.
    """

    def open_store(self, folder: Path) -> AbstractAsyncContextManager[Store]:
        """The store that belongs to ``folder``."""
        raise NotImplementedError("say how the store is opened that is to be held to the contract")

    def run_with_store(self, *tests: Callable[[Store], Awaitable[None]]) -> None:
        """Run each of ``tests`` with the store, opened anew for each."""

        async def main(folder: Path) -> None:
            for test in tests:
                with trio.move_on_after(_SECONDS) as scope:
                    async with self.open_store(folder) as store:
                        await test(store)
                assert not scope.cancelled_caught, f"the store was not done within {_SECONDS:.0f} s"

        with tempfile.TemporaryDirectory(prefix="embedkit-store-") as folder:
            _run(lambda: main(Path(folder)))

    def test_the_space_is_fixed_once(self) -> None:
        """Vectors of two models cannot be compared, so a store holds those of one."""
        space = Space("fake", "one", DIMENSION, {"dimensions": "8"})

        async def test(store: Store) -> None:
            assert await store.space() is None, "an empty store has no space yet"
            await store.claim_space(space)
            await store.claim_space(space)
            await _raises(
                SpaceMismatch,
                lambda: store.claim_space(Space("fake", "two", DIMENSION)),
                "another space was claimed over the first",
            )
            assert await store.space() == space, "the space that was claimed first is not the one that it has"

        self.run_with_store(test)

    def test_a_record_is_made_once(self) -> None:
        """And lists are sorted."""

        async def test(store: Store) -> None:
            first = await store.repository("globex", "site", "/srv/site")
            assert (first.tenant, first.name, first.root) == ("globex", "site", "/srv/site")
            assert await store.repository("globex", "site") == first, "the same repository has two records"
            moved = await store.repository("globex", "site", "/srv/new")
            assert (moved.id, moved.root) == (first.id, "/srv/new"), "a place that is given is not kept"
            await store.repository("acme", "site")
            await store.repository("acme", "api")
            names = [(record.tenant, record.name) for record in await store.repositories()]
            assert names == [("acme", "api"), ("acme", "site"), ("globex", "site")], f"records are listed as {names}"
            assert await store.tenants() == ["acme", "globex"], "tenants are not all there, or not sorted"

        self.run_with_store(test)

    def test_given_texts_and_a_folder_do_not_share_a_name(self) -> None:
        """Either would delete the other's documents."""

        async def test(store: Store) -> None:
            for name, held, other in (("a", "given:", "/srv/a"), ("b", "/srv/b", "given:")):
                await store.repository("acme", name, held)
                another = partial(store.repository, "acme", name, other)
                await _raises(UsageError, another, f"{held} became {other}")
                record = await store.repository("acme", name)
                assert record.root == held, f"a refused place was kept: {record.root}"

        self.run_with_store(test)

    def test_one_lease_at_a_time(self) -> None:
        """Two sweeps of one repository would undo each other."""

        async def test(store: Store) -> None:
            record = await store.repository("acme", "api")
            lease = await store.lease(record)
            await _raises(Leased, lambda: store.lease(record), "a second lease was given")
            await store.renew(lease)
            other = await store.lease(await store.repository("acme", "site"))
            await store.release(lease)
            await _raises(Leased, lambda: store.renew(lease), "a lease that was given back was renewed")
            await store.release(lease)
            again = await store.lease(record)
            await store.release(lease)  # an old one frees nobody else's
            await store.renew(again)
            await store.renew(other)

        self.run_with_store(test)

    def test_without_its_lease_nothing_is_written(self) -> None:
        """Whoever lost it commits nothing more: somebody else is at work."""

        async def test(store: Store) -> None:
            shelf = await Shelf.of(store)
            await shelf.put(document("old.txt", "apples"))
            lost = shelf.lease
            await store.release(lost)
            record, new = shelf.record, document("new.txt", "pears")
            calls: dict[str, Callable[[], Awaitable[object]]] = {
                "commit": lambda: store.commit(record, lost, vectors_for(new), [new]),
                "fence": lambda: store.fence(record, lost, {hash_of("plums"): "KB_X"}, [], engine="e"),
                "record_finding": lambda: store.record_finding(record, lost, hash_of("figs"), "timed-out"),
                "remove": lambda: store.remove(record, lost, ["old.txt"]),
                "finish": lambda: store.finish(
                    attrs.evolve(record, revision="r2"), lost, {"old.txt": Sighting("s", None, "binary")}
                ),
            }
            for name, call in calls.items():
                await _raises(Leased, call, f"{name}() wrote without its lease")
            assert await store.stored(record) == {"old.txt": ("hash of apples", GENERATION)}, "documents have changed"
            known = await store.known_inputs(record.tenant_id, [hash_of(w) for w in ("pears", "plums", "figs")])
            written = known.known | known.fenced | known.suspected
            assert not written, "inputs were written without a lease"
            assert (await store.repository("acme", "api")).revision is None, "the record was written without a lease"
            assert not await store.sightings(record), "sightings were written without a lease"

        self.run_with_store(test)

    def test_what_is_stored_is_there_when_it_is_opened_again(self) -> None:
        """Every column of it."""
        last = Last("deferred", "KB_X", "queue", "why", Clocks(1.0, 2.0, 3.0), 1700000000.5)
        seen = {"a.txt": Sighting("s", "h", None, "latin-1"), "b.bin": Sighting("t", None, "binary")}

        async def write(store: Store) -> None:
            shelf = await Shelf.of(store)
            await shelf.put(document("a.txt", "apples", "pears", metadata={"by": "ann"}))
            record = attrs.evolve(
                shelf.record, revision="r", generation=3, streak=2, succeeded=True, outstanding=4, next_due_at=5.5,
                last=last, batch_ceiling=6,
            )  # fmt: skip
            await store.finish(record, shelf.lease, seen)

        async def read(store: Store) -> None:
            record = await store.repository("acme", "api")
            held = (record.revision, record.generation, record.streak, record.succeeded, record.outstanding)
            assert held == ("r", 3, 2, True, 4), f"the record came back as {record}"
            assert (record.next_due_at, record.last, record.batch_ceiling) == (5.5, last, 6), f"came back as {record}"
            assert await store.sightings(record) == seen, "sightings came back as others"
            assert await store.stored(record) == {"a.txt": ("hash of apples|pears", GENERATION)}
            assert await store.count(record) == (1, 2), "not as many documents and chunks as were stored"
            hits = await found(store, unit("pears"), k=1)
            assert [(hit.path, hit.text, hit.lines) for hit in hits] == [("a.txt", "pears", (2, 2))]
            assert hits[0].metadata == {"by": "ann"}, f"metadata came back as {hits[0].metadata}"
            lease = await store.lease(record)  # which finish gave back
            await store.finish(record, lease, None)
            assert await store.sightings(record) == seen, "finish() without sightings changed them"

        self.run_with_store(write, read)

    def test_vectors_are_known_by_their_hash_and_to_their_tenant(self) -> None:
        """What one tenant bought, no other is given."""

        async def test(store: Store) -> None:
            acme, globex = await Shelf.of(store), await Shelf.of(store, "globex")
            await store.commit(acme.record, acme.lease, vectors_for(document("a.txt", "apples")), [])
            hashes = [hash_of("apples"), hash_of("pears")]
            known = await store.known_inputs(acme.record.tenant_id, hashes)
            assert set(known.known) == {hash_of("apples")}, "the vector that was committed is not known, or others are"
            foreign = await store.known_inputs(globex.record.tenant_id, hashes)
            assert not foreign.known, "a vector of one tenant is known to another"
            assert not await found(store, unit("apples")), "search finds a vector that no document points at"
            new = document("a.txt", "apples")
            assert (await store.commit(globex.record, globex.lease, {}, [new]))[1] == [new], (
                "a document was stored with the vector of another tenant"
            )

        self.run_with_store(test)

    def test_a_document_switches_whole(self) -> None:
        """The old chunks serve until the last new vector is there; then none of them is left."""

        async def test(store: Store) -> None:
            shelf = await Shelf.of(store)
            await shelf.put(document("a.txt", "apples", "pears"), document("b.txt", "apples"))
            new = document("a.txt", "plums", "figs")
            half = {hash_of("plums"): vectors_for(new)[hash_of("plums")]}
            removed, waiting = await store.commit(shelf.record, shelf.lease, half, [new])
            assert (removed, waiting) == (0, [new]), "a document that lacks a vector did not come back as waiting"
            assert await shelf.texts() == {"apples", "pears"}, "old chunks do not serve while a vector is missing"
            removed, waiting = await store.commit(shelf.record, shelf.lease, vectors_for(new), [new])
            assert (removed, waiting) == (2, []), f"two old chunks went, and {removed} were counted"
            assert await shelf.texts() == {"apples", "plums", "figs"}, "the chunks are not those of the new version"
            assert (await store.stored(shelf.record))["a.txt"] == ("hash of plums|figs", GENERATION)
            assert await store.count(shelf.record) == (2, 3)

        self.run_with_store(test)

    def test_what_is_removed_is_gone(self) -> None:
        """And what another document has too stays."""

        async def test(store: Store) -> None:
            shelf = await Shelf.of(store)
            await shelf.put(document("a.txt", "apples", "pears"), document("b.txt", "apples"))
            removed = await store.remove(shelf.record, shelf.lease, ["a.txt", "never.txt"])
            assert removed == 2, f"two chunks went, and {removed} were counted"
            assert await shelf.texts() == {"apples"}
            assert not await shelf.hits("pears", mode="text"), "a word of a removed document is still found"
            assert await store.count(shelf.record) == (1, 1)

        self.run_with_store(test)

    def test_fences_leave_chunks_out_until_they_are_lifted(self) -> None:
        """A poisonous chunk does not keep its document out."""

        async def test(store: Store) -> None:
            shelf = await Shelf.of(store)
            await store.claim_space(Space("fake", "one", DIMENSION))
            poisoned = document("a.txt", "apples", "poison")
            refused = {hash_of("poison"): "KB_REFUSED"}
            good = {hash_of("apples"): vectors_for(poisoned)[hash_of("apples")]}
            await store.commit(shelf.record, shelf.lease, good, [])
            _, waiting = await store.fence(shelf.record, shelf.lease, refused, [poisoned], engine="one")
            assert not waiting, "a document whose other chunk is fenced was not stored"
            assert await shelf.texts() == {"apples"}
            assert await store.fenced(shelf.record) == {"a.txt": 1}, "what fences leave out is not counted by document"
            known = await store.known_inputs(shelf.record.tenant_id, [hash_of("poison"), hash_of("apples")])
            assert set(known.fenced) == {hash_of("poison")}, "the fence is not known, or others are"
            before = await store.stored(shelf.record)
            assert not await store.lift_fences(shelf.record, engine="one"), "the fences of that engine were lifted"
            assert await store.stored(shelf.record) == before
            assert await store.lift_fences(shelf.record, engine="two"), "fences of another engine were kept"
            known = await store.known_inputs(shelf.record.tenant_id, [hash_of("poison")])
            assert not known.fenced, "a fence that was lifted still holds"
            assert await store.stored(shelf.record) != before, "the document that lacks a chunk is not due again"

        self.run_with_store(test)

    def test_findings_are_remembered_until_there_is_a_vector(self) -> None:
        """What was too long, and what timed out."""

        async def test(store: Store) -> None:
            shelf = await Shelf.of(store)
            await store.claim_space(Space("fake", "one", DIMENSION))
            long, slow = hash_of("long"), hash_of("slow")
            await store.record_finding(shelf.record, shelf.lease, long, "over-window")
            await store.record_finding(shelf.record, shelf.lease, slow, "timed-out")
            known = await store.known_inputs(shelf.record.tenant_id, [long, slow])
            assert (set(known.over_window), set(known.suspected)) == ({long}, {slow}), f"found: {known}"
            await store.commit(shelf.record, shelf.lease, vectors_for(document("a.txt", "slow")), [])
            known = await store.known_inputs(shelf.record.tenant_id, [long, slow])
            assert (set(known.over_window), set(known.suspected)) == ({long}, set()), f"found after a commit: {known}"

        self.run_with_store(test)

    def test_forgetting_leaves_nothing(self) -> None:
        """Of the repository; others of the same name and texts stay."""

        async def test(store: Store) -> None:
            acme, globex = await Shelf.of(store), await Shelf.of(store, "globex")
            for shelf in (acme, globex):
                await shelf.put(document("a.txt", "apples"), document("b.txt", "pears", "plums"))
            await _raises(Leased, lambda: store.forget(acme.record), "a repository that is being swept was forgotten")
            assert await store.count(acme.record) == (2, 3), "part of a repository went that is being swept"
            await store.release(acme.lease)
            counts = await store.forget(acme.record)
            assert counts == (2, 3), f"2 documents of 3 chunks were forgotten, and {counts} counted"
            assert await store.tenants() == ["globex"]
            assert not await acme.texts(), "search finds a tenant that was forgotten"
            assert await globex.texts() == {"apples", "pears", "plums"}, "the other tenant's chunks went as well"
            again = await store.repository("acme", "api")
            known = await store.known_inputs(again.tenant_id, [hash_of("apples")])
            assert not known.known, "vectors of a tenant that was forgotten are still there"

        self.run_with_store(test)

    def test_nearest_vectors_in_order(self) -> None:
        """By cosine, best first; at most k; at least ``min_score``."""

        async def test(store: Store) -> None:
            shelf = await Shelf.of(store)
            words = [f"word{number}" for number in range(40)]
            await shelf.put(*(document(f"{word}.txt", word) for word in words))
            query = unit("a query")
            right = sorted(words, key=lambda word: -float(unit(word) @ query))
            hits = await found(store, query, k=40)
            assert [hit.text for hit in hits] == right, "the nearest are not found in the order of their cosines"
            for hit in hits:
                near = float(unit(hit.text) @ query)
                assert hit.cosine is not None, "a hit of mode vector has no cosine"
                assert max(abs(hit.score - near), abs(hit.cosine - near)) < 1e-4, (
                    f"the score is {hit.score}, the cosine {near}"
                )
            assert [hit.text for hit in await found(store, query, k=3)] == right[:3], "k=3 did not give the best three"
            least = hits[4].score - 1e-6
            some = await found(store, query, k=40, min_score=least)
            assert [hit.text for hit in some] == right[:5], "min_score did not give those that reach it"

        self.run_with_store(test)

    def test_words_are_found(self) -> None:
        """And what has none of them is not."""

        async def test(store: Store) -> None:
            shelf = await Shelf.of(store)
            await shelf.put(document("a.txt", "green apples", "ripe pears"), document("b.txt", "blue plums"))
            assert {hit.text for hit in await shelf.hits("apples", mode="text")} == {"green apples"}
            assert {hit.text for hit in await shelf.hits("apples plums", mode="text")} == {"green apples", "blue plums"}
            assert not await shelf.hits("zebra", mode="text"), "a word that stands nowhere was found"
            for odd in ('"', "a AND", "NEAR(", "*", "", "x" * 5000):
                await shelf.hits(odd, mode="text")  # no query is anybody's syntax
            hits = await shelf.hits("apples", mode="hybrid")
            assert hits[0].text == "green apples", "hybrid: what is best by words and by vector is not first"

        self.run_with_store(test)

    def test_search_stays_where_it_is_told_to(self) -> None:
        """Tenant, repository, path, language and metadata."""

        async def test(store: Store) -> None:
            acme, site = await Shelf.of(store), await Shelf.of(store, name="site")
            globex = await Shelf.of(store, "globex")
            await acme.put(document("src/a.py", "apples one", metadata={"year": 2020, "by": "ann"}))
            await acme.put(document("docs/a.md", "apples two", metadata={"year": 2021, "by": "ann"}))
            await site.put(document("src/b.py", "apples three"))
            await globex.put(document("src/a.py", "apples four"))
            for mode in ("vector", "text", "hybrid"):
                cases: list[tuple[dict[str, Any], set[str]]] = [
                    ({}, {"one", "two", "three"}),
                    ({"tenants": ["globex"]}, {"four"}),
                    ({"tenants": ["acme", "globex"]}, {"one", "two", "three", "four"}),
                    ({"tenants": ["nobody"]}, set()),
                    ({"repository": "site"}, {"three"}),
                    ({"repository": "nowhere"}, set()),
                    ({"paths": ["docs/"]}, {"two"}),
                    ({"languages": ["python"]}, {"one", "three"}),
                    ({"metadata": {"by": "ann"}}, {"one", "two"}),
                    ({"metadata": {"by": "ann", "year": 2021}}, {"two"}),
                    ({"metadata": {"year": "2021"}}, set()),
                ]
                for where, right in cases:
                    hits = await acme.hits("apples", mode=mode, **where)
                    texts = {hit.text.removeprefix("apples ") for hit in hits}
                    assert texts == right, f"{mode}, {where}: {sorted(texts)} were found, and not {sorted(right)}"
            await _raises(
                UsageError, lambda: acme.hits("apples", languages=["klingon"]), "a language was searched that is none"
            )

        self.run_with_store(test)

    def test_copies_are_one_hit(self) -> None:
        """Which says where else it stands."""

        async def test(store: Store) -> None:
            acme, site = await Shelf.of(store), await Shelf.of(store, name="site")
            await acme.put(document("a.txt", "apples"), document("b.txt", "pears", "apples"))
            await site.put(document("c.txt", "apples"))
            hits = [hit for hit in await found(store, unit("apples"), k=10) if hit.text == "apples"]
            assert len(hits) == 1, f"one input that stands in three places is {len(hits)} hits"
            places = {(hits[0].repository, hits[0].path), *((place.repository, place.path) for place in hits[0].also)}
            assert places == {("api", "a.txt"), ("api", "b.txt"), ("site", "c.txt")}, f"it says of places: {places}"

        self.run_with_store(test)

    def test_neighbours_of_a_stored_chunk(self) -> None:
        """Not itself; and a place where nothing stands is refused."""

        async def test(store: Store) -> None:
            shelf = await Shelf.of(store)
            await shelf.put(document("a.txt", "apples", "pears"), document("b.txt", "plums"))
            hits = await shelf.hits("", like=("a.txt", 2))
            near = sorted(("apples", "plums"), key=lambda word: -float(unit(word) @ unit("pears")))
            assert [hit.text for hit in hits] == near, "not the neighbours of line 2, nearest first"
            await _raises(UsageError, lambda: shelf.hits("", like=("a.txt", 9)), "neighbours of nothing were found")

        self.run_with_store(test)

    def test_cancelled_at_each_await_a_commit_is_whole_or_not_at_all(self) -> None:
        """And the store is good for the next."""

        async def test(store: Store) -> None:
            shelf = await Shelf.of(store)
            await shelf.put(document("a.txt", "apples", "pears"))
            for steps in range(1, 1000):
                await shelf.put(document("a.txt", "apples", "pears"))
                new = document("a.txt", f"plums {steps}", f"figs {steps}")
                commit = partial(store.commit, shelf.record, shelf.lease, vectors_for(new), [new])
                ended, waited = await cancelled_after(steps, commit)
                texts = await shelf.texts()
                versions = ({"apples", "pears"}, {f"plums {steps}", f"figs {steps}"})
                assert texts in versions, f"a commit that was cancelled left {sorted(texts)}"
                words = {hit.text for hit in await shelf.hits("apples plums", mode="text")}
                assert words <= texts, f"a commit that was cancelled left the words of {sorted(words - texts)}"
                assert not ended or texts == versions[1], "commit() returned, and has not committed"
                if ended and not waited:
                    return
            raise AssertionError("a commit that is cancelled after so many steps never ends: 1,000 were tried")

        self.run_with_store(test)


async def _raises(kind: type[Exception], call: Callable[[], Awaitable[object]], otherwise: str) -> None:
    try:
        await call()
    except kind:
        return
    except Exception as error:
        raise AssertionError(f"{type(error).__name__} came out, and not {kind.__name__}") from error
    raise AssertionError(otherwise)


def _run(main: Callable[[], Awaitable[None]]) -> None:
    """As ``trio.run``; what a nursery made a group of comes out as it is, where it is one thing."""
    try:
        trio.run(main)
    except BaseExceptionGroup as group:
        error: BaseException = group
        while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
            error = error.exceptions[0]
        raise error from None
