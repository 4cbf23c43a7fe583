"""What a script may delete is read from it before it runs."""

from __future__ import annotations

import pytest

from tipchain.prepare.shell import find_removals, follow

PARAMS = "===train_params===\n\nmodel_name:net_v2\npython:python3\n"
HEAD = "MODE=$2\nIFS=$'\\n'\nlines=($(cat $1))\nmodel_name=$(func_parser_value \"${lines[1]}\")\n"


@pytest.fixture
def read(tmp_path):
    (tmp_path / "net.txt").write_text(PARAMS)

    def operands(text, mode="lite", **files):
        (tmp_path / "prepare.sh").write_text(HEAD + text)
        for name, content in files.items():
            (tmp_path / f"{name}.sh").write_text(content)
        removals, unread = follow(tmp_path / "prepare.sh", tmp_path, ("net.txt", mode))
        assert not unread
        return [one.pattern and one.pattern.removeprefix(f"{tmp_path}/") for one in removals]

    return operands


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("rm -rf a b/c ./d*", ["a", "b/c", "d*"]),
        ("rm -f a; rm a; rmdir b; echo rm -rf c # rm -rf d", []),
        ("rm -r a && rm --recursive b || rm -Rf c", ["a", "b", "c"]),
        ("cd a && tar xf b.tar && rm -rf c/ && cd ..\nrm -rf d", ["a/c", "d"]),
        ("pushd a\ncd b\nrm -rf c\npopd\nrm -rf d", ["a/b/c", "d"]),
        ("cd a/b; cd -; rm -rf c", ["c"]),
        ("(cd a; rm -rf b); rm -rf c", ["a/b", "c"]),
        ("x=$(pwd)/y\nrm -rf \"${x}\" '$x'", ["y", "$x"]),
        ("rm -rf $unknown; cd $unknown; rm -rf a /tmp/x", [None, None, "/tmp/x"]),
        ("for d in a b; do rm -rf $d; done", ["a", "b"]),
        ("while read d; do rm -rf $d; done <list", [None]),
        ("for ((i=0; i<2; i++)); do\n  rm -rf a\ndone", ["a"]),
        ("rm -rf \\\n  a \\\n  b", ["a", "b"]),
        ("cat <<END >x\nrm -rf a\nEND\nrm -rf b", ["b"]),
        ("eval 'rm -rf a'; command rm -rf b; /bin/rm -rf c", ["a", "b", "c"]),
        ("clean() { local d=$1; rm -rf $d/x; }\nfunction all { clean a; }\nall; rm -rf $1.d", ["a/x", "net.txt.d"]),
        ("exit 0\nrm -rf a", []),
        ("x=`ls`; y=${x%.tar}; rm -rf ${y}_z", [None]),
        ("a=(1 2); b=$(f \"$(g ')')\"); rm -rf c", ["c"]),
    ],
)
def test_operands_are_followed_to_where_they_are(read, text, expected):
    assert read(text) == expected


@pytest.mark.parametrize(
    ("condition", "holds"),
    [
        ('[ ${MODE} = "lite" ]', True),
        ("[ ${MODE} != lite ]", False),
        ('[[ ${MODE} == "whole" ]] || [[ $model_name == net* ]]', True),
        ('[[ ${MODE} = "lite" && ${model_name} =~ "other" ]]', False),
        ("[[ ${MODE} = whole \\\n || ${MODE} = other ]]", False),
        ("! [ -z $MODE ]", True),
        ("test -n ''", False),
        ("[ -d there ]", None),
        ("[ -d there ] && [ $MODE = whole ]", False),
        ("[ $(md5sum x | awk '{print $1}') = \"1\" ]", None),
        ("grep -q x y", None),
    ],
)
def test_a_branch_counts_unless_it_cannot_be_reached(read, condition, holds):
    found = read(f"if {condition}; then rm -rf yes; else rm -rf no; fi; rm -rf after")
    assert found == {True: ["yes"], False: ["no"], None: ["yes", "no"]}[holds] + ["after"]


def test_a_case_is_a_branch_too(read):
    text = "case ${model_name} in\n  other) rm -rf a ;;\n  net*|x)\n rm -rf b ;;\n *) rm -rf c\nesac"
    assert read(text) == ["b"]
    assert read(text.replace("${model_name}", "$unknown")) == ["a", "b", "c"]


def test_ways_that_lead_to_other_folders_cannot_be_told(read):
    assert read("if [ -d a ]; then cd a; fi; rm -rf b") == [None]
    assert read("if [ -d a ]; then cd a; exit; fi; rm -rf b") == ["b"]
    assert read("cd a || exit 1; rm -rf b") == ["a/b"]


def test_other_scripts_are_followed(read):
    text = "source one.sh; bash two.sh x; sh absent.sh; rm -rf $c"
    assert read(text, one="c=from_one; cd a", two="") == ["a/from_one"]
    assert read("bash two.sh x; rm -rf b", two="cd a; rm -rf $1") == ["a/x", "b"]
    assert read("bash two.sh", two="rm -rf a; bash two.sh")[:2] == ["a", "a"], "and it comes to an end"


def test_only_what_is_there_is_named_and_what_cannot_be_told(tmp_path):
    for name in ("data/a1", "data/a2", "data/b"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "data/link").symlink_to(tmp_path / "data/b")
    script = tmp_path / "p.sh"
    script.write_text("rm -rf data/a* data/link data/absent\nrm -rf $x/y\nrm -rf $x/y\n")
    found = find_removals(script, tmp_path, ())
    assert found.paths == tuple(tmp_path / "data" / name for name in ("a1", "a2", "link"))
    assert found.untold == ("p.sh:2: rm -r $x/y", "p.sh:3: rm -r $x/y")


@pytest.mark.parametrize("text", ["if x; then rm -rf a", 'rm -rf "a', "rm -rf a; fi", "case x in a) rm -rf b"])
def test_a_script_that_cannot_be_read_is_said_to_be_so(tmp_path, text):
    (tmp_path / "p.sh").write_text(text)
    (told,) = find_removals(tmp_path / "p.sh", tmp_path, ()).untold
    assert told.startswith("p.sh: line 1: ")
