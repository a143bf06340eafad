"""A git server that accepts, and says nothing; and one that answers."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from dulwich.objects import Blob, Commit, Tree
from dulwich.refs import Ref
from dulwich.repo import Repo
from dulwich.server import BackendRepo, DictBackend, TCPGitServer


@contextmanager
def silent() -> Iterator[tuple[str, list[socket.socket]]]:
    """Its address without a scheme, and the connections that it has accepted."""
    accepted: list[socket.socket] = []
    with socket.create_server(("127.0.0.1", 0), backlog=64) as server:

        def accept() -> None:
            while True:
                try:
                    accepted.append(server.accept()[0])
                except OSError:
                    return

        thread = threading.Thread(target=accept)
        thread.start()
        try:
            yield f"127.0.0.1:{server.getsockname()[1]}", accepted
        finally:
            server.shutdown(socket.SHUT_RDWR)
            thread.join()
            for connection in accepted:
                connection.close()


@contextmanager
def served(repository: Repo) -> Iterator[str]:
    """The repository over the git protocol on loopback."""
    repositories: dict[bytes, BackendRepo] = {b"/": repository}
    server = TCPGitServer(DictBackend(repositories), "127.0.0.1", 0)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"git://127.0.0.1:{server.server_address[1]}/"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def commit(repository: Repo, files: dict[str, bytes]) -> None:
    """The files become the head of master."""
    tree = Tree()
    for name, content in files.items():
        blob = Blob.from_string(content)
        repository.object_store.add_object(blob)
        tree.add(name.encode(), 0o100644, blob.id)
    made = Commit()
    made.tree = tree.id
    made.author = made.committer = b"A <a@example.org>"
    made.author_time = made.commit_time = 1_700_000_000
    made.author_timezone = made.commit_timezone = 0
    made.message = b"change"
    for thing in (tree, made):
        repository.object_store.add_object(thing)
    repository.refs[Ref(b"refs/heads/master")] = made.id
