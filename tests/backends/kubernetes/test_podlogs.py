"""The output of a program, freed of what Argo's executor writes among it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simrun.backends.kubernetes.podlogs import LONGEST, program_output

FIRST = (
    b"time=2026-11-30T16:23:29.283Z level=INFO"
    b' msg="waiting for signals" argo=true signalPath=/var/run/argo/ctr/main/signal\n'
)
LAST = b'time=2026-11-30T16:23:31.101Z level=INFO msg="sub-process exited" argo=true error=<nil>\n'


async def output_of(*chunks: bytes) -> bytes:
    async def stream() -> AsyncIterator[bytes]:
        for chunk in chunks:
            yield chunk

    return b"".join([chunk async for chunk in program_output(stream())])


async def test_the_executors_lines_are_left_out() -> None:
    assert await output_of(FIRST + b"hello\n" + LAST + b"Error: exit status 3\n") == (
        b"hello\nError: exit status 3\n"
    )


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"no newline at the end",
        b"time=3.5 s\n",
        b"time=1 level=INFO msg=mine\n",
        b"speed argo=true\n",
        b"time=",
        b"\x80\x00\xff\r\n\n\n",
        b"half a line " + FIRST,
        b"time=" + b"x" * (2 * LONGEST) + b" level=INFO msg=a argo=true\n",
    ],
)
async def test_everything_else_passes_byte_for_byte(text: bytes) -> None:
    assert await output_of(text) == text


@given(cuts=st.lists(st.integers(0, 400), max_size=12))
@settings(deadline=None)
async def test_it_makes_no_difference_where_the_stream_is_cut(cuts: list[int]) -> None:
    text = FIRST + b"one\ntime=two\n" + LAST + b"\x80three" + LAST + LAST + b"time=four"
    places = sorted({0, len(text), *(cut for cut in cuts if cut < len(text))})
    chunks = [text[a:b] for a, b in pairwise(places)]

    assert await output_of(*chunks) == b"one\ntime=two\n\x80three" + LAST + b"time=four"


async def test_a_line_without_end_is_not_held_back() -> None:
    asked = 0

    async def stream() -> AsyncIterator[bytes]:
        nonlocal asked
        yield b"progress: 1 %"
        asked += 1

    output = program_output(stream())

    assert await anext(output) == b"progress: 1 %"
    assert asked == 0
