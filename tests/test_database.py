from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
import trio
import trio.testing

from embedkit.database import Database, open_database
from embedkit.database_errors import folder_error, store_error
from embedkit.errors import StoreFull, StoreLocked, StoreReadOnly, StoreUnreadable, UsageError

NOTES = ("CREATE TABLE notes (id INTEGER PRIMARY KEY, text TEXT NOT NULL)",)


def add(text: str, connection: sqlite3.Connection) -> None:
    connection.execute("INSERT INTO notes (text) VALUES (?)", (text,))


def texts(connection: sqlite3.Connection) -> list[str]:
    return [text for (text,) in connection.execute("SELECT text FROM notes ORDER BY id")]


def files(folder: Path) -> list[str]:
    return sorted(file.name for file in folder.iterdir())


def content(path: Path) -> bytes:
    return path.read_bytes()


def overwrite(path: Path, new: bytes, start: int = 0) -> None:
    path.write_bytes(path.read_bytes()[:start] + new if path.exists() else new)


def pragma(name: str, connection: sqlite3.Connection) -> object:
    return connection.execute(f"PRAGMA {name}").fetchone()[0]


async def with_notes(database: Database, *written: str) -> None:
    await database.migrate("notes", NOTES)
    for text in written:
        await database.write(partial(add, text))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store.sqlite3"


async def test_what_was_written_is_there_when_the_file_is_opened_again(path: Path) -> None:
    async with open_database(path) as database:
        await with_notes(database, "one", "two")
    async with open_database(path, create=False) as database:
        assert await database.read(texts) == ["one", "two"]


async def test_the_file_is_set_up_as_promised(path: Path) -> None:
    async with open_database(path) as database:
        assert await database.write(partial(pragma, "journal_mode")) == "wal"
        assert await database.write(partial(pragma, "synchronous")) == 1
        assert await database.write(partial(pragma, "foreign_keys")) == 1


async def test_closing_leaves_one_file(path: Path) -> None:
    async with open_database(path) as database:
        await with_notes(database, "one")
        await database.read(texts)
    assert files(path.parent) == ["store.sqlite3"]


async def test_an_exception_rolls_the_whole_transaction_back(path: Path) -> None:
    def add_then_fail(connection: sqlite3.Connection) -> None:
        add("half", connection)
        raise LookupError("work's own")

    async with open_database(path) as database:
        await with_notes(database, "kept")
        with pytest.raises(LookupError, match="work's own"):
            await database.write(add_then_fail)
        assert await database.read(texts) == ["kept"]
        await database.write(partial(add, "after"))
        assert await database.read(texts) == ["kept", "after"]


async def test_a_bug_in_a_statement_is_not_dressed_up_as_trouble_with_the_store(path: Path) -> None:
    async with open_database(path) as database:
        await with_notes(database)
        with pytest.raises(sqlite3.IntegrityError):
            await database.write(lambda c: c.execute("INSERT INTO notes (text) VALUES (NULL)"))
        with pytest.raises(sqlite3.OperationalError, match="no such table"):
            await database.read(lambda c: c.execute("SELECT * FROM nowhere"))


async def test_an_error_of_the_file_system_inside_work_is_work_s_own(path: Path) -> None:
    def fail(_: sqlite3.Connection) -> None:
        raise PermissionError("somebody else's file")

    async with open_database(path) as database:
        with pytest.raises(PermissionError):
            await database.write(fail)


async def test_a_reader_cannot_write(path: Path) -> None:
    async with open_database(path) as database:
        await with_notes(database)
        with pytest.raises(StoreReadOnly):
            await database.read(partial(add, "no"))


async def test_readers_do_not_wait_for_the_writer_and_see_one_state(path: Path) -> None:
    written, read = threading.Event(), threading.Event()

    def slow(connection: sqlite3.Connection) -> None:
        add("new", connection)
        written.set()
        assert read.wait(10)

    async with open_database(path) as database:
        await with_notes(database, "old")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(database.write, slow)
            await trio.to_thread.run_sync(written.wait)
            # Four readers at once, while the writer holds its transaction open.
            async with trio.open_nursery() as readers:
                for _ in range(4):
                    readers.start_soon(expect, database, ["old"])
            read.set()
        await expect(database, ["old", "new"])


async def expect(database: Database, expected: list[str]) -> None:
    assert await database.read(texts) == expected


async def test_writers_take_turns_in_order(path: Path) -> None:
    inside = 0

    def exclusive(text: str, connection: sqlite3.Connection) -> None:
        nonlocal inside
        inside += 1
        assert inside == 1
        add(text, connection)
        inside -= 1

    async with open_database(path) as database:
        await with_notes(database)
        async with trio.open_nursery() as nursery:
            for number in range(20):
                nursery.start_soon(database.write, partial(exclusive, str(number)))
                await trio.testing.wait_all_tasks_blocked()
        assert await database.read(texts) == [str(number) for number in range(20)]


# Cancellation: before, parked behind another write, inside the thread, waiting for another process's lock.


async def test_cancelled_before_the_thread_began_means_untouched(path: Path) -> None:
    async with open_database(path) as database:
        await with_notes(database)
        with trio.CancelScope() as scope:
            scope.cancel()
            await database.write(partial(add, "never"))
        assert scope.cancelled_caught
        assert await database.read(texts) == []


async def test_cancelled_while_parked_behind_another_write_means_untouched(path: Path) -> None:
    begun, go = threading.Event(), threading.Event()

    def hold(connection: sqlite3.Connection) -> None:
        begun.set()
        assert go.wait(10)
        add("first", connection)

    async with open_database(path) as database:
        await with_notes(database)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(database.write, hold)
            await trio.to_thread.run_sync(begun.wait)
            with trio.CancelScope() as scope:
                nursery.start_soon(cancel_when_blocked, scope)
                await database.write(partial(add, "never"))
            assert scope.cancelled_caught
            go.set()
        assert await database.read(texts) == ["first"]


async def cancel_when_blocked(scope: trio.CancelScope) -> None:
    await trio.testing.wait_all_tasks_blocked()
    scope.cancel()


async def test_cancelled_inside_the_thread_commits_returns_and_raises_at_the_next_checkpoint(path: Path) -> None:
    returned: list[str] = []

    async with open_database(path) as database:
        await with_notes(database)
        with trio.CancelScope() as scope:

            def work(connection: sqlite3.Connection) -> str:
                add("committed", connection)
                trio.from_thread.run_sync(scope.cancel)
                return "result"

            returned.append(await database.write(work))
            assert scope.cancel_called
            await trio.lowlevel.checkpoint()
            pytest.fail("the cancellation was lost")
        assert scope.cancelled_caught
        assert returned == ["result"]
        assert await database.read(texts) == ["committed"]


async def test_a_failure_inside_the_thread_is_not_hidden_by_a_cancellation(path: Path) -> None:
    async with open_database(path) as database:
        await with_notes(database)
        with trio.CancelScope() as scope:

            def work(connection: sqlite3.Connection) -> None:
                trio.from_thread.run_sync(scope.cancel)
                raise LookupError

            with pytest.raises(LookupError):
                await database.write(work)


async def test_cancelled_while_another_process_holds_the_lock_ends_soon_and_untouched(path: Path) -> None:
    async with open_database(path, busy_timeout=60.0) as database:
        await with_notes(database)
        other = sqlite3.connect(path, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        async with trio.open_nursery() as nursery:
            with trio.CancelScope() as scope:
                nursery.start_soon(cancel_when_blocked, scope)
                await database.write(partial(add, "never"))
        assert scope.cancelled_caught
        other.execute("ROLLBACK")
        other.close()
        assert await database.read(texts) == []
        await database.write(partial(add, "after"))


async def test_leaving_waits_for_the_transaction_that_runs_and_refuses_the_others(path: Path) -> None:
    begun, go = threading.Event(), threading.Event()

    def hold(connection: sqlite3.Connection) -> None:
        begun.set()
        assert go.wait(10)
        add("committed", connection)

    async def refused(work: str) -> None:
        with pytest.raises(trio.ClosedResourceError):
            await database.write(partial(add, work))

    async with trio.open_nursery() as nursery, open_database(path) as database:
        await with_notes(database)
        nursery.start_soon(database.write, hold)
        await trio.to_thread.run_sync(begun.wait)
        nursery.start_soon(refused, "queued")
        await trio.testing.wait_all_tasks_blocked()
        nursery.start_soon(release_when_blocked, go)
    await refused("late")
    with pytest.raises(trio.ClosedResourceError):
        await database.read(texts)
    async with open_database(path) as database:
        assert await database.read(texts) == ["committed"]


async def release_when_blocked(go: threading.Event) -> None:
    await trio.testing.wait_all_tasks_blocked()
    go.set()


async def test_cancelling_the_block_closes_the_file(path: Path) -> None:
    with trio.CancelScope() as scope:
        async with open_database(path) as database:
            await with_notes(database, "one")
            scope.cancel()
            await trio.sleep_forever()
    assert files(path.parent) == ["store.sqlite3"]


# Migrations.


async def test_only_missing_steps_run_each_once(path: Path) -> None:
    ran: list[str] = []

    def second(connection: sqlite3.Connection) -> None:
        ran.append("second")
        connection.execute("ALTER TABLE notes ADD COLUMN at REAL")

    async with open_database(path) as database:
        await with_notes(database, "one")
        await database.migrate("notes", (*NOTES, second))
        await database.migrate("notes", (*NOTES, second))
        await database.migrate("others", ("CREATE TABLE others (id INTEGER)",))
        assert ran == ["second"]
        assert await database.read(texts) == ["one"]


async def test_a_script_is_one_step_whatever_stands_in_it(path: Path) -> None:
    script = """
        -- a comment; with a semicolon
        CREATE TABLE a (x TEXT DEFAULT 'b;c');
        CREATE TRIGGER t AFTER INSERT ON a BEGIN UPDATE a SET x = 'd;'; DELETE FROM a WHERE x = ''; END;
        INSERT INTO a DEFAULT VALUES;
    """
    async with open_database(path) as database:
        await database.migrate("a", (script,))
        assert await database.read(lambda c: c.execute("SELECT x FROM a").fetchall()) == [("d;",)]


async def test_a_step_that_fails_leaves_nothing_and_runs_again(path: Path) -> None:
    async with open_database(path) as database:
        with pytest.raises(sqlite3.OperationalError):
            await database.migrate("a", ("CREATE TABLE a (x); CREATE TABLE b (; ",))
        await database.migrate("a", ("CREATE TABLE a (x); CREATE TABLE b (y)",))
        assert await database.read(lambda c: c.execute("SELECT * FROM b").fetchall()) == []


async def test_a_newer_file_is_refused_by_name(path: Path) -> None:
    async with open_database(path) as database:
        await database.migrate("notes", (*NOTES, "ALTER TABLE notes ADD COLUMN at REAL"))
        with pytest.raises(StoreUnreadable) as caught:
            await database.migrate("notes", NOTES)
    message = str(caught.value)
    assert message.startswith(f"{path}: its notes tables have version 2")
    assert "up to 1: upgrade embedkit" in message


async def test_many_openers_of_a_new_file_migrate_it_once(path: Path) -> None:
    async def opener() -> None:
        async with open_database(path) as database:
            await database.migrate("notes", (*NOTES, "INSERT INTO notes (text) VALUES ('once')"))

    async with trio.open_nursery() as nursery:
        for _ in range(8):
            nursery.start_soon(opener)
    async with open_database(path) as database:
        assert await database.read(texts) == ["once"]


# S-6: disk full, read-only, locked, corrupt, each a named error; nothing committed is lost.


def one_line(error: BaseException, path: Path) -> bool:
    return str(path) in str(error) and "\n" not in str(error) and error.__cause__ is not None


async def test_s6_disk_full(path: Path) -> None:
    async with open_database(path) as database:
        await with_notes(database, "kept")
        pages = await database.write(partial(pragma, "page_count"))
        await database.write(partial(pragma, f"max_page_count = {pages}"))
        with pytest.raises(StoreFull) as caught:
            await database.write(partial(add, "x" * 100_000))
        assert one_line(caught.value, path)
        assert await database.read(texts) == ["kept"]
        await database.write(partial(pragma, "max_page_count = 100000"))
        await database.write(partial(add, "there is room again"))
        assert await database.read(texts) == ["kept", "there is room again"]


async def test_s6_locked(path: Path) -> None:
    async with open_database(path, busy_timeout=0.01) as database:
        await with_notes(database, "kept")
        other = sqlite3.connect(path, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreLocked) as caught:
            await database.write(partial(add, "no"))
        assert one_line(caught.value, path)
        assert await database.read(texts) == ["kept"]
        other.execute("ROLLBACK")
        other.close()
        await database.write(partial(add, "yes"))


async def test_a_lock_that_is_released_in_time_is_waited_for(path: Path) -> None:
    async with open_database(path, busy_timeout=60.0) as database:
        await with_notes(database)
        other = sqlite3.connect(path, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(database.write, partial(add, "waited"))
            await trio.testing.wait_all_tasks_blocked()
            other.execute("ROLLBACK")
        other.close()
        assert await database.read(texts) == ["waited"]


@pytest.mark.parametrize("text", [b"hello, I am a text file\n" * 100, b"short"])
async def test_s6_not_a_database(path: Path, text: bytes) -> None:
    overwrite(path, text)
    with pytest.raises(StoreUnreadable, match="not a database") as caught:
        async with open_database(path):
            pass
    assert one_line(caught.value, path)
    assert content(path) == text


async def test_s6_damaged(path: Path) -> None:
    async with open_database(path) as database:
        await with_notes(database, *("x" * 3_000 for _ in range(20)))
    overwrite(path, b"\xff" * (len(content(path)) - 4096), start=4096)
    async with open_database(path) as database:
        with pytest.raises(StoreUnreadable, match="damaged") as caught:
            await database.read(texts)
        assert one_line(caught.value, path)


@pytest.mark.parametrize("to_read", [False, True])
async def test_an_empty_file_is_no_store_and_a_new_one_where_one_is_made(path: Path, to_read: bool) -> None:
    overwrite(path, b"")
    with pytest.raises(UsageError, match="no store at"):
        async with open_database(path, create=False, may_be_read_only=to_read):
            pass
    assert content(path) == b""
    async with open_database(path, may_be_read_only=to_read) as database:
        await with_notes(database, "one")


async def test_a_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StoreUnreadable, match="it is a folder"):
        async with open_database(tmp_path):
            pass


async def test_a_file_where_a_folder_should_be_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for place in (tmp_path / "file" / "store", tmp_path / "file" / "deeper" / "store"):
        with pytest.raises(StoreUnreadable) as caught:
            async with open_database(place):
                pass
        assert one_line(caught.value, place)


async def test_another_program_s_database_is_refused_and_left_as_it_is(path: Path) -> None:
    with sqlite3.connect(path) as other:
        other.execute("CREATE TABLE bookmarks (url TEXT)")
    other.close()
    before = content(path)
    with pytest.raises(StoreUnreadable, match="another program's database"):
        async with open_database(path):
            pass
    assert content(path) == before


async def test_without_create_a_missing_file_is_the_caller_s_mistake(path: Path) -> None:
    with pytest.raises(UsageError) as caught:
        async with open_database(path, create=False):
            pass
    assert str(caught.value) == f"no store at {path}; run `embedkit sync` first"
    assert files(path.parent) == []


async def test_an_odd_file_name_is_taken_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "50% of #1? é.sqlite3"
    async with open_database(path) as database:
        await with_notes(database, "one")
    assert files(tmp_path) == [path.name]


async def test_a_default_folder_that_is_made_keeps_itself_out_of_repositories(tmp_path: Path) -> None:
    async with open_database(tmp_path / "a" / ".embedkit" / "knowledge.sqlite3"):
        pass
    assert (tmp_path / "a" / ".embedkit" / ".gitignore").read_text() == "*\n"
    async with open_database(tmp_path / "b" / "elsewhere" / "knowledge.sqlite3"):
        pass
    assert not (tmp_path / "b" / "elsewhere" / ".gitignore").exists()
    (tmp_path / ".embedkit").mkdir()
    async with open_database(tmp_path / ".embedkit" / "knowledge.sqlite3"):
        pass
    assert not (tmp_path / ".embedkit" / ".gitignore").exists()


def make_read_only(path: Path, mode: int) -> None:
    path.chmod(mode)


@pytest.fixture
def unprivileged() -> Iterator[Path]:
    """A folder to work in, as a user to whom permissions apply (root may write anything)."""
    folder = Path(tempfile.mkdtemp())
    root = os.geteuid() == 0
    if root:
        os.chown(folder, 65534, 65534)
        os.seteuid(65534)
    try:
        yield folder
    finally:
        if root:
            os.seteuid(0)
        folder.chmod(0o755)
        shutil.rmtree(folder)


@pytest.mark.skipif(os.name != "posix", reason="permissions as POSIX knows them")
async def test_s6_read_only_file(unprivileged: Path) -> None:
    path = unprivileged / "store.sqlite3"
    async with open_database(path) as database:
        await with_notes(database, "kept")
    make_read_only(path, 0o444)
    with pytest.raises(StoreReadOnly) as caught:
        async with open_database(path):
            pass
    assert one_line(caught.value, path)


@pytest.mark.skipif(os.name != "posix", reason="permissions as POSIX knows them")
@pytest.mark.parametrize("inside", ["store.sqlite3", "deeper/store.sqlite3"])
async def test_s6_read_only_folder(unprivileged: Path, inside: str) -> None:
    make_read_only(unprivileged, 0o555)
    with pytest.raises(StoreReadOnly) as caught:
        async with open_database(unprivileged / inside):
            pass
    assert one_line(caught.value, unprivileged / inside)


def sqlite_error(code: int) -> sqlite3.OperationalError:
    error = sqlite3.OperationalError("what SQLite said")
    error.sqlite_errorcode = code
    return error


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (sqlite3.SQLITE_FULL, StoreFull),
        (4874, StoreFull),  # IOERR_SHMSIZE: the write-ahead index found no room
        (sqlite3.SQLITE_IOERR_WRITE, StoreUnreadable),
        (sqlite3.SQLITE_READONLY_DBMOVED, StoreReadOnly),
        (sqlite3.SQLITE_BUSY_SNAPSHOT, StoreLocked),
        (sqlite3.SQLITE_CANTOPEN, StoreUnreadable),
        (sqlite3.SQLITE_CORRUPT_VTAB, StoreUnreadable),
        (sqlite3.SQLITE_NOTADB, StoreUnreadable),
        (sqlite3.SQLITE_CONSTRAINT_UNIQUE, type(None)),
        (sqlite3.SQLITE_ERROR, type(None)),
    ],
)
def test_what_sqlite_says_becomes_a_kind(code: int, kind: type) -> None:
    assert type(store_error(sqlite_error(code), Path("s"))) is kind


def test_what_the_file_system_says_becomes_a_kind() -> None:
    assert type(folder_error(OSError(28, "No space left on device"), Path("s"))) is StoreFull
    assert type(folder_error(OSError(30, "Read-only file system"), Path("s"))) is StoreReadOnly
    assert type(folder_error(OSError(5, "Input/output error"), Path("s"))) is StoreUnreadable


WRITER = """
import functools, sys, trio
from embedkit.database import open_database

def add(number, connection):
    (top,) = connection.execute("SELECT coalesce(max(id), 0) FROM notes").fetchone()
    connection.execute("INSERT INTO notes VALUES (?, ?)", (top + 1, f"{sys.argv[2]} {number}"))

async def main():
    async with open_database(sys.argv[1]) as database:
        for number in range(25):
            await database.write(functools.partial(add, number))

trio.run(main)
"""


async def test_two_processes_write_in_turn_and_lose_nothing(path: Path) -> None:
    async with open_database(path) as database:
        await with_notes(database)
        async with trio.open_nursery() as nursery:
            for name in ("a", "b"):
                command = [sys.executable, "-c", WRITER, str(path), name]
                nursery.start_soon(trio.run_process, command)
        found = await database.read(texts)
    for name in ("a", "b"):
        assert [text for text in found if text[0] == name] == [f"{name} {number}" for number in range(25)]


def test_the_module_does_not_import_sqlite() -> None:
    code = "import sys, embedkit.database, embedkit.activity.disk; sys.exit('sqlite3' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)
