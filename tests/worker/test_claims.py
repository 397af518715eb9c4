import errno
import os

import pytest

from simrun.worker.claims import UNREADABLE, Claim, Holder, Token, TokenFile, decode_token

HOLDER = Holder("sweep-w1", 2, "0123456789ab", "node-a")


def test_a_holder_is_named_by_worker_attempt_and_pod():
    assert HOLDER.name == "sweep-w1-2.01234567"


@pytest.mark.parametrize(
    "token", [Token(HOLDER), Token(HOLDER, open=True), Token(HOLDER, open=True, reopened=True)]
)
def test_a_token_says_the_same_after_it_was_read(token):
    assert decode_token(token.encode()) == token


@pytest.mark.parametrize(
    "data", [b"", b"[]", b"\xff", b'{"worker":"w"}', Token(HOLDER).encode()[:20]]
)
def test_a_damaged_token_is_somebody_without_a_heartbeat_and_never_open(data):
    assert decode_token(data) == UNREADABLE
    assert not UNREADABLE.open


def test_fields_of_a_newer_harness_do_no_harm():
    newer = Token(HOLDER).encode().replace(b'{"schema":1', b'{"schema":1,"zone":"b"')

    assert decode_token(newer) == Token(HOLDER)


def test_a_token_is_written_once_and_linked_for_each_claim(tmp_path):
    file = TokenFile(tmp_path, Token(HOLDER))

    assert file.link(Claim(3, 1))
    assert file.link(Claim(4, 1))
    assert {path.name for path in tmp_path.iterdir()} == {".sweep-w1-2.01234567.0", "3.1", "4.1"}
    assert len({path.stat().st_ino for path in tmp_path.iterdir()}) == 1


def test_even_two_tokens_of_one_holder_cannot_both_have_a_claim(tmp_path):
    one, other = TokenFile(tmp_path, Token(HOLDER)), TokenFile(tmp_path, Token(HOLDER))

    assert [one.link(Claim(0, 1)), other.link(Claim(0, 1))] == [True, False]
    assert one.link(Claim(0, 1)), "a repeated link, such as after a lost reply, is a won one"


def test_tokens_of_each_kind_have_files_of_their_own(tmp_path):
    for number, token in enumerate(
        [Token(HOLDER), Token(HOLDER, open=True), Token(HOLDER, open=True, reopened=True)]
    ):
        assert TokenFile(tmp_path, token).link(Claim(number, 1))
        assert decode_token((tmp_path / f"{number}.1").read_bytes()) == token


def test_a_token_with_all_the_links_it_may_have_goes_on_as_another_file(tmp_path, monkeypatch):
    real_link = os.link

    def link(source, target):
        if os.stat(source).st_nlink > 3:
            raise OSError(errno.EMLINK, "Too many links")
        real_link(source, target)

    monkeypatch.setattr(os, "link", link)
    file = TokenFile(tmp_path, Token(HOLDER))

    assert all(file.link(Claim(unit, 1)) for unit in range(10))
    assert len({(tmp_path / f"{unit}.1").stat().st_ino for unit in range(10)}) == 4


def test_a_store_that_fails_is_an_error_and_no_lost_claim(tmp_path, monkeypatch):
    file = TokenFile(tmp_path, Token(HOLDER))
    assert file.link(Claim(0, 1))

    def link(source, target):
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(os, "link", link)
    with pytest.raises(OSError, match="Input/output error"):
        file.link(Claim(1, 1))
