"""A scripted engine in a process of its own, for benchmarks: ``python -m embedkit.testing.engine_process --slots 4``.

Its first line on standard output is its base address. It ends when its standard input does, and so with its parent.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

import trio

from embedkit.testing.scripted_engine import open_scripted_engine


def main(argv: Sequence[str] | None = None) -> None:
    """Serve until standard input ends."""
    trio.run(_serve, _arguments(argv))


def _arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="embedkit.testing.engine_process", description=__doc__)
    parser.add_argument("--slots", type=int, default=1, help="units of work at the same time")
    parser.add_argument("--service", type=float, default=0.0, help="seconds a unit takes")
    parser.add_argument("--split", action="store_true", help="each input is a unit of its own")
    parser.add_argument("--run-on", action="store_true", help="go on computing when a client leaves")
    parser.add_argument("--dimension", type=int, default=384, help="of the vectors")
    return parser.parse_args(argv)


async def _serve(arguments: argparse.Namespace) -> None:
    async with open_scripted_engine(
        slots=arguments.slots,
        service=arguments.service,
        split=arguments.split,
        on_leave="run-on" if arguments.run_on else "stop",
        dimension=arguments.dimension,
    ) as engine:
        sys.stdout.write(f"{engine.base_url}\n")
        sys.stdout.flush()
        await trio.to_thread.run_sync(sys.stdin.read, abandon_on_cancel=True)


if __name__ == "__main__":
    main()
