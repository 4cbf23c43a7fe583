"""Entries of a gpu list: devices and hosts, as they are meant and as the original drivers take them."""

from __future__ import annotations

import re

from tipchain.chain.spec import Leg
from tipchain.chain.suites import Suite
from tipchain.chain.words import Slot, Words

HOST = r"[A-Za-z0-9](?:[A-Za-z0-9.:-]*[A-Za-z0-9])?"
LONGEST_WITHOUT_HOSTS = 15


def parsed_leg(slot: Slot, text: str, use_gpu: Words, suite: Suite) -> Leg:
    """Return the leg that an entry means: ``-1``, ``0``, ``0,1`` or ``host1,host2;0,1``.

    Raises:
        ParamsError: it means none.
    """
    addresses, semicolon, gpus = text.rpartition(";")
    cpu = text == "-1"
    if not cpu and (
        not re.fullmatch(r"\d+(,\d+)*", gpus)
        or (semicolon and not re.fullmatch(rf"{HOST}(,{HOST})*", addresses))
    ):
        raise slot.error(f"{text!r} names no device", expected="-1, 0, 0,1 or host1,host2;0,1")
    ids = () if cpu else tuple(gpus.split(","))
    if len({int(one) for one in ids}) < len(ids):
        raise slot.error(f"{text!r} names a GPU twice", expected="each GPU once, as 0,1")
    hosts = tuple(addresses.split(",")) if semicolon else ()
    original = original_leg(text, use_gpu, suite)
    return Leg(
        text=gpus,
        gpus=ids,
        hosts=hosts,
        nodes=max(len(hosts), 1),
        launched=len(ids) > 1 or bool(hosts),
        multi_host=bool(hosts),
        use_gpu=use_gpu,
        at_once=original.at_once,
        remembered=original.remembered,
    )


def original_leg(text: str, use_gpu: Words, suite: Suite) -> Leg:
    """Return the leg that the original driver makes of an entry: it tells by the length of the text."""
    hosts, gpus, remembered, at_once = "", text, None, None
    if text != "-1" and len(text) > LONGEST_WITHOUT_HOSTS:
        hosts, _, rest = text.partition(";")
        gpus = rest.partition(";")[0]
        remembered = gpus.partition(",")[0] if suite.devices.hosts_export else None
    elif text != "-1":
        remembered = text if suite.devices.export_all else text.partition(",")[0]
        at_once = text if len(text) <= 1 and suite.devices.at_once else None
    several = len(hosts) >= suite.devices.hosts_from
    launched = len(gpus) > 2
    return Leg(
        text=gpus,
        gpus=() if text == "-1" else tuple(filter(None, gpus.split(","))),
        hosts=tuple(hosts.split(",")) if several else (),
        nodes=len(hosts.split(",")) if several else 1,
        launched=launched,
        multi_host=launched and several,
        use_gpu=use_gpu,
        at_once=at_once,
        remembered=remembered,
    )
