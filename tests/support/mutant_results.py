"""What became of each mutant, kept in `build/mutants/`."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass

from mutant_list import ROOT, Mutant, fingerprint

BUILD = ROOT / "build" / "mutants"


@dataclass
class Found:
    """What became of a mutant. `by`: the test or seed that kills it, "" if it lives; `after`: the number of tests or
    seeds that it survived; `whole`: whether these were all."""

    by: str
    after: int
    whole: bool
    took_s: float
    on: str


class Results:
    """What was found in one way, kept in a file. `found`: by mutant; `sound`: whether a test passes without one, which
    is known of the present tree only."""

    def __init__(self, way: str) -> None:
        self.way, self._file = way, BUILD / f"{way}.json"
        plain = json.loads(self._file.read_text("utf-8")) if self._file.exists() else {"found": {}, "sound": {}}
        self.found = {breaks: Found(**row) for breaks, row in plain["found"].items()}
        self._tree = fingerprint()
        self.sound: dict[str, bool] = plain["sound"] if plain.get("tree") == self._tree else {}

    def knows(self, mutant: Mutant, limit_s: float) -> bool:
        """Whether that mutant is not to be tried again, with a limit of so many seconds."""
        found = self.found.get(mutant.breaks)
        return found is not None and (bool(found.by) or found.whole or found.took_s >= limit_s)

    def keep(self) -> None:
        BUILD.mkdir(parents=True, exist_ok=True)
        found = {breaks: asdict(found) for breaks, found in self.found.items()}
        plain = {"tree": self._tree, "found": found, "sound": self.sound}
        beside = self._file.with_suffix(".tmp")
        beside.write_text(json.dumps(plain, indent=1) + "\n", encoding="utf-8")
        beside.replace(self._file)
