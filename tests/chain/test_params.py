"""The text of a parameter file, and its values as words, without a shell."""

import pytest
from chain_samples import TEMPLATE

from tipchain.chain.params import Slot, flag, parse_params, read_params, split_words
from tipchain.errors import ParamsError


@pytest.mark.parametrize(
    ("line", "key", "value"),
    [
        ("url: http://host:80/x ", "url", " http://host:80/x "),
        ("runner.model_save_path ", "runner.model_save_path", ""),
        ("k:1：2", "k", "1：2"),
    ],
)
def test_the_first_colon_ends_the_key(line, key, value):
    (param,) = parse_params(f"===a===\n{line}\n").params
    assert (param.section, param.key, param.value, param.line) == ("a", key, value, 2)


def test_crlf_bom_blanks_comments_and_a_missing_last_newline_are_harmless():
    plain = parse_params(TEMPLATE)
    odd = "\ufeff# mine\r\n\r\n" + TEMPLATE.replace("\n", "\r\n").rstrip()
    strip = lambda file: [(p.section, p.key, p.value) for p in file.params]  # noqa: E731
    assert strip(parse_params(odd)) == strip(plain)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a:b\n", "f.txt:1: a line before the first section header"),
        ("===a===\nk:\x00\n", "f.txt:2: a control character"),
        ("===a===\nk:1\n<<<<<<< HEAD\nl:1\n=======\nl:2\n>>>>>>> b\n", "f.txt:3: a marker of a merge conflict"),
        ("===a===\nl:1\n=======\nl:2\n>>>>>>> b\n", "f.txt:3: a marker of a merge conflict"),
        ("===a===\nk：1\n", "f.txt:2: a full-width colon stands after the key(.|\n)*found: k：1"),
        ("===a===\nk ： a:b\n", "f.txt:2: a full-width colon stands after the key"),
    ],
)
def test_impossible_lines_are_refused_with_their_place(text, message):
    with pytest.raises(ParamsError, match=message):
        parse_params(text, "f.txt")


def test_a_header_between_seven_signs_is_no_conflict():
    assert parse_params("======= a =======\nk:1\n").headers == (("a", 1),)


def test_unreadable_files_are_refused(tmp_path):
    (tmp_path / "latin").write_bytes(b"===a===\nk:\xff\n")
    with pytest.raises(ParamsError, match="is not UTF-8"):
        read_params(tmp_path / "latin")
    with pytest.raises(ParamsError, match="No such file"):
        read_params(tmp_path / "absent")
    with pytest.raises(ParamsError, match="Is a directory"):
        read_params(tmp_path)


@pytest.mark.parametrize(
    ("encoding", "found", "hint"),
    [
        ("gbk", r":2: k: is not UTF-8 text(.|\n)*byte 10, in (.|\n)*expected: UTF-8", "iconv -f GB18030 -t UTF-8"),
        ("utf-16", r":1: is not UTF-8 text(.|\n)*byte 0, in ", "iconv -f UTF-16 -t UTF-8"),
        ("latin-1", r":2: k: is not UTF-8 text", None),
    ],
)
def test_other_encodings_are_told_with_their_line(tmp_path, encoding, found, hint):
    path = tmp_path / "file.txt"
    path.write_bytes(("===a===\nk:" + ("ÿ" if encoding == "latin-1" else "文本") + "\n").encode(encoding))
    with pytest.raises(ParamsError, match=found) as error:
        read_params(path)
    assert error.value.hint == (hint and f"if it is {hint.split()[2]}, convert it: {hint}")


def test_a_file_that_is_too_large_is_refused_before_it_is_read(tmp_path):
    path = tmp_path / "large.txt"
    with path.open("wb") as file:
        file.truncate(1 << 40)  # a terabyte that takes no room
    with pytest.raises(ParamsError, match=r"too large for a parameter file\n.*expected: at most 1,000,000 bytes"):
        read_params(path)


def slot(value="v", key="--k"):
    return Slot(role="role", key=key, value=value, file="f.txt", line=7)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a  b", ("a", "b")),
        ("--x='a b' \"c d\"", ("--x=a b", "c d")),
        ("a\\ b", ("a b",)),
        ("'$(touch x)'", ("$(touch x)",)),
        ("'a;b|c'", ("a;b|c",)),
        ("$HOME *.py {a,b} ~", ("$HOME", "*.py", "{a,b}", "~")),
        ("", ()),
    ],
)
def test_words(text, words):
    assert split_words(text, slot()) == words


SHELLS = ("a;b", "a $(b)", "`a`", '"$(a)"', "a|b", "a&", "a>b", "(a)", '"`a`"')


@pytest.mark.parametrize("text", [*SHELLS, "it's", 'a "b', "a\\"])
def test_what_a_shell_would_act_on_and_unbalanced_quotes_are_refused(text):
    why = ".* would be acted on by a shell" if text in SHELLS else "cannot be split"
    with pytest.raises(ParamsError, match=rf"f\.txt:7: --k: {why}"):
        split_words(text, slot())


def test_flags():
    assert flag(slot("3")) == ("--k=3",)
    assert flag(slot("3", "-o Global.x")) == ("-o", "Global.x=3")
    assert flag(slot("null")) == flag(slot(" ")) == flag(slot("3", "null")) == ()
    assert flag(slot("null"), raw=True) == ("--k=null",)


@pytest.mark.parametrize(("value", "values"), [("a|b", ("a", "b")), ("", ()), ("a|", ("a",)), ("a||b", ("a", "", "b"))])
def test_lists(value, values):
    assert slot(value).values == values
