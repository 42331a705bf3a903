from __future__ import annotations

import os

import pytest

from reclaim.files import replace_file


def test_the_file_appears_with_what_was_written(tmp_path):
    with replace_file(tmp_path / "a.bin") as file:
        file.write(b"one")
        file.write(b"two")
    assert (tmp_path / "a.bin").read_bytes() == b"onetwo"
    assert os.listdir(tmp_path) == ["a.bin"]


def test_a_reader_sees_the_old_content_until_the_end(tmp_path):
    path = tmp_path / "a.bin"
    path.write_bytes(b"old")
    with replace_file(path) as file:
        file.write(b"new")
        file.flush()
        assert path.read_bytes() == b"old"
    assert path.read_bytes() == b"new"


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
@pytest.mark.parametrize("before", [None, b"old"])
def test_an_exception_leaves_everything_as_it_was(tmp_path, error, before):
    path = tmp_path / "a.bin"
    if before is not None:
        path.write_bytes(before)

    def write_half():
        with replace_file(path) as file:
            file.write(b"half")
            raise error

    with pytest.raises(error):
        write_half()
    assert os.listdir(tmp_path) == ([] if before is None else ["a.bin"])
    assert before is None or path.read_bytes() == before


def test_a_target_that_cannot_be_replaced_leaves_no_temporary_file(tmp_path):
    (tmp_path / "folder").mkdir()
    with pytest.raises(OSError, match="folder"), replace_file(tmp_path / "folder") as file:
        file.write(b"content")
    assert os.listdir(tmp_path) == ["folder"]


def test_a_missing_folder_is_an_error_of_its_own(tmp_path):
    with pytest.raises(FileNotFoundError), replace_file(tmp_path / "nowhere" / "a.bin"):
        pass


def test_the_permissions_are_those_of_any_new_file(tmp_path):
    (tmp_path / "plain").touch()
    with replace_file(tmp_path / "replaced"):
        pass
    assert (tmp_path / "replaced").stat().st_mode == (tmp_path / "plain").stat().st_mode


def test_a_path_may_be_text(tmp_path):
    with replace_file(str(tmp_path / "a.bin")) as file:
        file.write(b"x")
    assert (tmp_path / "a.bin").read_bytes() == b"x"
