"""Tests of the reasons for which entries are invalid."""

from __future__ import annotations

import re
from pathlib import Path

from zkconsumer.fetcher import damage
from zkconsumer.fetcher.damage import Damage, DamageKind


def test_each_kind_has_its_own_text() -> None:
    assert len({kind.text for kind in DamageKind}) == len(DamageKind)


def test_decoder_reports_only_known_kinds() -> None:
    source = (Path(damage.__file__).parent / "_decode.c").read_text()
    texts = set(re.findall(r'reason = "([^"]+)"', source))

    found = {Damage.from_decoder(text, 7).kind for text in texts}

    assert found == set(DamageKind) - {DamageKind.BATCH_MISSING}
