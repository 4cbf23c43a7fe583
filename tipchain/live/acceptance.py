"""The port with the settings that a user accepts put right, so that all else can be judged."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import ExitStack, contextmanager
from importlib import import_module

from tipchain.explain.causes.settings import reference_settings
from tipchain.explain.preflight.construction import every_path
from tipchain.framework_types import Model
from tipchain.frameworks.randomness import attributes
from tipchain.live.report import AlignmentReport


@contextmanager
def put_right(
    report: AlignmentReport, stages: Collection[str], reference: Model, port: Model
) -> Iterator[list[dict[str, str]]]:
    """Give the port the reference's value of each setting that a stage shows; yield stage and message of those causes."""
    paths = {(one.port_path, one.code): one.reference_path for one in report.findings}
    layers, port_layers = dict(reference.named_modules(remove_duplicate=False)), dict(every_path(port))
    settled, nn = [], import_module("paddle").nn
    with ExitStack() as stack:
        for cause in report.diagnoses:
            if cause.stage not in stages or cause.run:
                continue
            changes = []
            for path in cause.layers:
                ours, theirs = layers.get(paths.get((path, cause.name), "")), port_layers.get(path)
                known = [] if ours is None or theirs is None else reference_settings(cause.name, ours, theirs, nn)
                changes += [(theirs, one) for *_, one in known]
            if len(changes) >= len(cause.layers):
                settled.append({"stage": cause.stage, "message": cause.message})
                for layer, one in changes:
                    stack.enter_context(attributes(layer, **one))
        yield settled
