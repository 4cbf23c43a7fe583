"""The line of a cause as it should be."""

from __future__ import annotations

import pytest

pytest.importorskip("paddle")  # the order of its arguments

from tipchain.explain.findings import CodeEdit, Diagnosis, SourceLine
from tipchain.explain.source_edits import correct


def passed(call: str, **arguments: str) -> CodeEdit:
    return CodeEdit(kind="pass", call=call, arguments=tuple(arguments.items()))


LAST = CodeEdit(kind="write", call="[:, 0]", written="[:, -1]")


@pytest.mark.parametrize(
    ("edit", "line", "expected"),
    [
        (passed("avg_pool2d", exclusive="False"), "x = F.avg_pool2d(self.act(x), 3)  # 池化", "x = F.avg_pool2d(self.act(x), 3, exclusive=False)  # 池化"),
        (passed("BatchNorm2D", epsilon="1e-05"), "self.bn = nn.BatchNorm2D(8, epsilon=1e-2)", "self.bn = nn.BatchNorm2D(8, epsilon=1e-05)"),
        (passed("Norm", epsilon="1e-05"), "self.bn = nn.Sequential(nn.BatchNorm2D(8), act)", "self.bn = nn.Sequential(nn.BatchNorm2D(8, epsilon=1e-05), act)"),
        (passed("f", a="1", b="2"), "y = f(b=3, a=4)", "y = f(b=2, a=1)"),
        (passed("f", a="1", b="2"), "y = f()", "y = f(a=1, b=2)"),
        (passed("f", a="1"), "if f(x):\n    pass", "if f(x, a=1):"),
        (passed("Conv2D", stride="2", groups="2"), "self.a = nn.Conv2D(3, 8, 3, 1)", "self.a = nn.Conv2D(3, 8, 3, 2, groups=2)"),
        (passed("softmax", axis="1"), "x = F.softmax(self.fc(x), -1)", "x = F.softmax(self.fc(x), 1)"),
        (passed("transpose", perm="[0, 2, 1]"), "x = x.flatten(2).transpose([1, 2, 0])", "x = x.flatten(2).transpose([0, 2, 1])"),
        (passed("BatchNorm2D", epsilon="1e-05"), "self.bn = nn.BatchNorm2D(8, **more)", ""),
        (passed("BatchNorm2D", momentum="0.9"), "self.body = nn.Sequential(*layers)", ""),
        (passed("softmax", axis="1"), "x = nn.Linear(4, 4)(x) * y", ""),
        (passed("", gamma="0.5"), "return paddle.optimizer.lr.StepDecay(0.1, 3, 0.1)", "return paddle.optimizer.lr.StepDecay(0.1, 3, 0.5)"),
        (CodeEdit(kind="write", call="relu", written="gelu"), "return F.relu(self.fc1(x))", "return F.gelu(self.fc1(x))"),
        (CodeEdit(kind="write", call="softmax", written="log_softmax", arguments=(("axis", "-1"),)), "y = F.softmax(x, 1)", "y = F.log_softmax(x, -1)"),
        (CodeEdit(kind="remove", call="relu"), "x = F.relu(self.bn(x))", "x = self.bn(x)"),
        (CodeEdit(kind="remove", call="block.drop"), "x = self.drop(self.bn(x))", "x = self.bn(x)"),
        (CodeEdit(kind="remove", call="transpose"), "x = x.reshape([2, 3]).transpose([1, 0]) + y", "x = x.reshape([2, 3]) + y"),
        (CodeEdit(kind="remove", call="scale"), "x = scale(x, 3)", ""),
        (LAST, "return self.fc(self.norm(out[:, 0]))", "return self.fc(self.norm(out[:, -1]))"),
        (LAST, "return out[:, 0] + mean[:, 0]", ""),
        (CodeEdit(kind="order", call="concat", order=(2, 0, 1)), "x = f(paddle.concat([a, g(b), c], 1))", "x = f(paddle.concat([c, a, g(b)], 1))"),
        (CodeEdit(kind="order", call="concat", order=(1, 0)), "x = paddle.concat(parts, 1)", ""),
        (CodeEdit(kind="before", call="drop", written="relu"), "return self.drop(self.fc(x))", "return self.drop(F.relu(self.fc(x)))"),
        (CodeEdit(kind="before", call="drop", written="relu"), "x = self.drop(x, 0.5)", ""),
        (CodeEdit(kind="after", call="fc", written="gelu", arguments=(("approximate", "True"),)), "x = self.fc(x)", "x = F.gelu(self.fc(x), approximate=True)"),
    ],
)  # fmt: skip
def test_a_line_as_it_should_be(tmp_path, edit, line, expected):
    file = tmp_path / "port.py"
    indented = "\n    ".join(line.splitlines())
    file.write_text(f"import paddle\n\n\ndef forward(self, x):\n    {indented}\n")
    place = SourceLine(file=str(file), line=5)
    cause = Diagnosis(code="argument", port_path="", message="", evidence="", fix="", place=place, edit=edit)
    assert correct(cause) == expected


def test_nothing_is_corrected_where_no_file_is():
    place = SourceLine(file="/absent/port.py", line=1, code="x = f(x)")
    cause = Diagnosis(code="argument", port_path="", message="", evidence="", fix="", place=place, edit=LAST)
    assert not correct(cause)
