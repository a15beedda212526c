"""Signed notes and checkpoints: Go's own example is read, and nothing that differs by a byte."""

import pytest

from scheduler.ledger.note import NoteError, Signer, TreeHead, Verifier, open_note

# From the documentation of golang.org/x/mod/sumdb/note.
GO_KEY = "PRIVATE+KEY+PeterNeumann+c74f20a3+AYEKFALVFGyNhPJEMzD1QIDr+Y7hfZx09iUvxdXHKDFz"
GO_VERIFIER = "PeterNeumann+c74f20a3+ARpc2QcUPDhMQegwxbzhKqiBfsVkmqq/LDE4izWy10TW"
GO_NOTE = (
    "If you think cryptography is the answer to your problem,\nthen you don't know what your problem is.\n\n"
    "— PeterNeumann x08go/ZJkuBS9UG/SffcvIAQxVBtiFupLLr8pAcElZInNIuGUgYN1FFYC2pZSNXgKvqfqdngotpRZb6KE6RyyBwJnAM=\n"
)
SIGNER = Signer("berth.example.org", bytes(range(32)))
HEAD = TreeHead("berth.example.org/decisions", 5, bytes(32))


def test_keys_and_notes_are_as_go_writes_them() -> None:
    signer, verifier = Signer.parse(GO_KEY), Verifier.parse(GO_VERIFIER)
    assert signer.verifier == verifier
    assert str(verifier) == GO_VERIFIER
    assert signer.private_text() == GO_KEY
    text, by = open_note(GO_NOTE, [verifier])
    assert by == [verifier]
    assert signer.sign(text) == GO_NOTE


def test_a_checkpoint_is_read_as_it_was_written() -> None:
    for head in (HEAD, HEAD._replace(extensions=("unlogged 7",))):
        text, _by = open_note(SIGNER.sign(head.text()), [SIGNER.verifier])
        assert TreeHead.parse(text) == head


@pytest.mark.parametrize("at", range(0, 190, 7))
def test_no_byte_of_a_note_can_be_changed(at: int) -> None:
    note = SIGNER.sign(HEAD.text()).encode()
    if at >= len(note):
        pytest.skip("the note is shorter")
    changed = note[:at] + bytes([note[at] ^ 1]) + note[at + 1 :]
    with pytest.raises((NoteError, UnicodeDecodeError)):
        TreeHead.parse(open_note(changed.decode(), [SIGNER.verifier])[0])


def test_a_signature_is_written_in_one_way_only() -> None:
    note = SIGNER.sign(HEAD.text())
    with pytest.raises(NoteError, match="is no signature"):
        open_note(f"{note[:-5]}!{note[-5:]}", [SIGNER.verifier])


def test_a_note_of_another_key_is_signed_by_none_of_the_known() -> None:
    other = Signer("berth.example.org", bytes(32))
    with pytest.raises(NoteError, match=r"by none of the known keys, but by .* If the key was rotated"):
        open_note(other.sign(HEAD.text()), [SIGNER.verifier])


def test_a_note_of_a_stranger_is_not_taken_for_one_of_a_key_that_was_rotated() -> None:
    with pytest.raises(NoteError, match=r"but by stranger\+[0-9a-f]{8}$"):
        open_note(Signer("stranger", bytes(32)).sign(HEAD.text()), [SIGNER.verifier])


def test_a_note_may_have_signatures_of_others_too() -> None:
    other = Signer("witness", bytes(32))
    both = SIGNER.sign(HEAD.text()) + other.sign(HEAD.text()).rpartition("\n\n")[2]
    assert open_note(both, [other.verifier])[1] == [other.verifier]
    assert open_note(both, [SIGNER.verifier, other.verifier])[1] == [SIGNER.verifier, other.verifier]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "a\n1\n",
        "a\n-1\nAAAA\n",
        "a\n01\n" + "A" * 43 + "=\n",
        "a\n1\nAAAA\n",
        "a\n1\n" + "A" * 43 + "=",
        f"\n1\n{'A' * 43}=\n",
        f"a\n1\n{'A' * 43}!\n",
        f"a\n\uff11\n{'A' * 43}=\n",
    ],
)
def test_what_is_no_checkpoint_is_refused(text: str) -> None:
    with pytest.raises(NoteError, match="no checkpoint"):
        TreeHead.parse(text)


@pytest.mark.parametrize(
    "text",
    [
        "", "name", "name+00000000+AAAA", GO_VERIFIER.replace("c74f20a3", "c74f20a4"), "n+0+!", "short+00000000+AQAA",
        f"{GO_VERIFIER[:-5]}!{GO_VERIFIER[-5:]}",
    ],
)  # fmt: skip
def test_what_is_no_key_is_refused(text: str) -> None:
    with pytest.raises(NoteError):
        Verifier.parse(text)
    with pytest.raises(NoteError):
        Signer.parse(f"PRIVATE+KEY+{text}")
    with pytest.raises(NoteError):
        Signer.parse(text)


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(f"own {GO_KEY}", id="words before it"),
        pytest.param(GO_KEY.replace("c74f20a3", "c74f20a4"), id="another id"),
        pytest.param(GO_KEY.replace("+AYEK", "+AoEK"), id="another algorithm"),
        pytest.param("PRIVATE+KEY+", id="nothing behind it"),
    ],
)
def test_what_is_no_private_key_is_refused(text: str) -> None:
    with pytest.raises(NoteError):
        Signer.parse(text)


@pytest.mark.parametrize("name", ["", "two words", "a+b"])
def test_a_key_has_a_name_that_a_note_can_hold(name: str) -> None:
    with pytest.raises(NoteError, match="no name of a key"):
        Signer.make(name)


def test_a_text_without_an_end_is_not_signed() -> None:
    with pytest.raises(NoteError, match="ends with a line"):
        SIGNER.sign("no end")


@pytest.mark.parametrize(
    ("note", "why"),
    [
        ("text", "it is no signed note"),
        ("text\n\n— name", "has no end"),
        ("text\n\nname AAAA\n", "is no signature"),
        ("text\n\n— name !\n", "is no signature"),
        ("text\n\n—  AAAA\n", "is no signature"),
    ],
)
def test_what_is_no_signed_note_is_refused(note: str, why: str) -> None:
    with pytest.raises(NoteError, match=why):
        open_note(note, [SIGNER.verifier])
