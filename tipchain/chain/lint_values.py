"""Values that do nothing: settings that no command of any mode gets, entries that nothing reads."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping

from tipchain.chain.fixes import Finding
from tipchain.chain.inferring import DEVICE_KINDS, SHORT_NAMES
from tipchain.chain.plan import Plan
from tipchain.chain.reading import OTHER_MODES
from tipchain.chain.slots import Slots
from tipchain.chain.suites import Suite
from tipchain.chain.words import NOTHING, Slot
from tipchain.modes import CHAIN_MODES, Mode

CODE = "useless"
EVERY_MODE = frozenset(mode for mode in CHAIN_MODES if mode is not Mode.KLQUANT_WHOLE_INFER)
WITHOUT_TRAINING = tuple(mode.value for mode in CHAIN_MODES if not mode.trains)


def useless_values(slots: Slots, suite: Suite, plans: Mapping[Mode, Plan]) -> Iterator[Finding]:
    """Yield what in ``slots`` does nothing in any of ``plans``."""
    yield from _untrained(slots, suite)
    yield from _mode_entries(slots, suite)
    yield from _lengths(slots, suite)
    yield from _devices(slots, suite)
    yield from _axis_values(slots, suite, plans)
    yield from _quantized(slots, suite)
    yield from _precisions(slots, plans)
    eval_, extra = slots["eval"], slots.get("extra_eval")
    if eval_.absent and extra is not None and not extra.absent and extra.key not in NOTHING:
        yield _finding(extra, "is never passed: eval is null")


def _finding(slot: Slot, message: str, severity: str = "warning") -> Finding:
    return Finding(
        code=CODE, severity=severity, file=slot.file, line=slot.line, key=slot.key, message=message
    )


def _untrained(slots: Slots, suite: Suite) -> Iterator[Finding]:
    names = slots["trainer"].values
    for rule in suite.trainers:
        slot = slots.get(rule.key)
        if slot is None or rule.key != rule.command[0] or slot.absent or slot.key in NOTHING:
            continue
        taken = rule.kind == "norm" and suite.amp_trainer in names
        if slot.key not in names and rule.kind not in names and not taken:
            yield _finding(slot, "is never trained with: trainer does not name it", "info")


def _mode_entries(slots: Slots, suite: Suite) -> Iterator[Finding]:
    for slot in slots.values():
        names = [part.partition("=")[0] for part in slot.values if "=" in part]
        if slot.role in suite.mode_lists:
            for name in names:
                if name in OTHER_MODES:
                    yield _finding(slot, f"has a value for {name}, a mode of other drivers", "info")
                elif name in WITHOUT_TRAINING:
                    yield _finding(slot, f"has a value for {name}, which does not train", "info")
        elif slot.role in ("epoch", "batch") and any(
            name in {mode.value for mode in CHAIN_MODES} for name in names
        ):
            yield _finding(slot, f"is passed as it stands: {suite.title} has no values by mode here")


def _lengths(slots: Slots, suite: Suite) -> Iterator[Finding]:
    models = slots["infer_model"]
    for role in ("infer_export", "infer_quant"):
        slot = slots.get(role)
        if slot is None or role in suite.unread or models.absent or slot.absent:
            continue
        if len(slot.values) > len(models.values):
            yield _finding(slot, f"has {len(slot.values)} entries, {models.key} has {len(models.values)}")
        elif role == "infer_quant" and len(slot.values) < len(models.values):
            told = f"has {len(slot.values)} entries, {models.key} has {len(models.values)}"
            yield _finding(slot, f"{told}: nothing says whether the others are quantized")


def _devices(slots: Slots, suite: Suite) -> Iterator[Finding]:
    gpus, devices = slots["gpu_list"], slots.get("use_gpu")
    if suite.devices.parameter != "each" or devices is None:
        return
    if len(devices.values) > len(gpus.values):
        yield _finding(devices, f"has {len(devices.values)} values, gpu_list has {len(gpus.values)}", "info")
    for gpu, value in zip(gpus.values, devices.values, strict=False):  # the lists need not be of one length
        wrong = DEVICE_KINDS.get(value) == ("gpu" if gpu == "-1" else "cpu")
        if wrong and devices.key not in NOTHING:
            yield _finding(devices, f"hands {value!r} to the entry {gpu!r} of gpu_list")


def _axis_values(slots: Slots, suite: Suite, plans: Mapping[Mode, Plan]) -> Iterator[Finding]:
    """Yield settings of inference that stand twice, or that no command has."""
    inferences = [one for plan in plans.values() for one in plan.commands if one.step == "infer"]
    used = {part for one in inferences for part in _parts(one.id)}
    kinds = {kind for kind in suite.infer.rules if kind in used}
    for role, devices in _axes(suite).items():
        slot = slots[role]
        if slot.key in NOTHING:
            continue
        yield from (
            _finding(slot, f"has {one!r} twice") for one, count in Counter(slot.values).items() if count > 1
        )
        if slot.absent or not inferences or not plans.keys() >= EVERY_MODE:
            continue
        if not devices & kinds:
            where = " or ".join(sorted(one.upper() for one in devices))
            yield _finding(slot, f"does nothing: nothing is inferred on the {where}", "info")
            continue
        name = SHORT_NAMES.get(role, role)
        for value in dict.fromkeys(slot.values):
            if value not in NOTHING and f"{name}={value}" not in used:
                yield _finding(slot, f"{value!r} is in no command: no combination with it can be")


def _quantized(slots: Slots, suite: Suite) -> Iterator[Finding]:
    """Yield an int8 that stands for models of which none is quantized."""
    slot, quant, pact = slots.get("precision"), slots.get("infer_quant"), slots.get("train_pact")
    trained = pact is not None and not {pact.key, "pact"}.isdisjoint(slots["trainer"].values)
    if slot is None or quant is None or slot.key in NOTHING or suite.klquant == "quantize":
        return
    for value in dict.fromkeys(slot.values):
        if "int8" in value and not trained and "True" not in quant.values:
            yield _finding(slot, f"{value!r} is for quantized models, and none is: infer_quant has no True")


def _axes(suite: Suite) -> dict[str, set[str]]:
    """Return the settings of inference, each with the devices that have it."""
    axes: dict[str, set[str]] = {}
    for kind, rule in suite.infer.rules.items():
        for role in rule.fixed_axes:
            axes.setdefault(role, set()).add(kind)
    return axes


def _parts(identifier: str) -> list[str]:
    """Return what ``infer[a;b]#2`` is made of: ``a`` and ``b``."""
    return identifier.partition("[")[2].rpartition("]")[0].split(";")


def _precisions(slots: Slots, plans: Mapping[Mode, Plan]) -> Iterator[Finding]:
    skipped = {
        one.skip for plan in plans.values() for one in plan.commands if one.step == "train" and one.skip
    }
    for reason in sorted(skipped):
        yield _finding(slots.get("autocast", slots["trainer"]), f"is skipped: {reason}", "info")
