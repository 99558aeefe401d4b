"""`sirocco demo`: all services in this process, real cities and a stream of posts, live."""

from __future__ import annotations

import argparse
from typing import Any

from sirocco.cli.terminal.numbers import count, rate, real, whole
from sirocco.cli.terminal.terminal import print_lines
from sirocco.kernels.jit.precompile import compile_ahead


def add_parser(commands: Any) -> None:
    """Adds the command to the parser."""
    parser = commands.add_parser(
        "demo",
        description="Starts all services on the embedded log, registers a few queries over real "
        "cities, publishes the cities and a seeded stream of posts, and shows what matches as it "
        "arrives. At the end all matches are counted again by brute force.",
    )
    parser.add_argument(
        "--seconds", type=real(0.1, 86_400.0), default=25.0, help="length of the stream (25)"
    )
    parser.add_argument("--rate", type=rate, default=3_000.0, help="posts a second (3000)")
    parser.add_argument(
        "--seed", type=whole(0, (1 << 32) - 2), default=42, help="of the posts (42)"
    )
    parser.add_argument("--evaluators", type=count, default=2, help="evaluators (2)")
    parser.add_argument(
        "--no-browser",
        action="store_true",
        help="serve no console for browsers; the terminal shows everything either way",
    )
    parser.set_defaults(run=_run)


def _run(args: argparse.Namespace) -> int:
    # Otherwise the import below compiles them one after another without a message.
    compile_ahead(lambda line: print_lines(f"sirocco demo: {line}"), at_start=True)
    print_lines("sirocco demo: loading the engine …")
    from sirocco.cli.demo.run import DemoSettings, run_demo  # noqa: PLC0415

    return run_demo(
        DemoSettings(args.seconds, args.rate, args.seed, args.evaluators, not args.no_browser)
    )
