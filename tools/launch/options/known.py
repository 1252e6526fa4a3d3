"""The options of an engine's own parser, by release: a word that the parser would reject is refused, not printed."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec

from contracts.errors import ConfigError

ANY = -1


class Option(msgspec.Struct, frozen=True):
    """One option of the parser."""

    values: int
    """Number of values; `ANY` for none or several."""
    choices: tuple[str, ...] = ()
    """Allowed values; empty if all are."""
    sets: str = ""
    """The engine's setting that it is an alias for; empty if it has the setting's own name."""


class UnknownOption(ConfigError):
    """This release of the engine would reject the command line and exit."""


class KnownOptions(msgspec.Struct, frozen=True):
    """All options of one release."""

    version: str
    options: dict[str, Option]

    def require(self, words: Sequence[str], field: str) -> None:
        """Raises UnknownOption, naming `field`, for words that the engine's parser would refuse.

        words: a command line after its program.
        """
        at = 0
        while at < len(words):
            name, joined, value = words[at].partition("=")
            option = self.options.get(name)
            if option is None:
                near = difflib.get_close_matches(name, self.options, n=1)
                hint = f"did you mean {near[0]}?" if near else "see its --help"
                raise UnknownOption(f"{field}: release {self.version} has no option {name}; {hint}", param=field)
            if joined:
                values = [value]
                at += 1
            else:
                end = at + 1
                while end < len(words) and not words[end].startswith("--"):
                    end += 1
                values = list(words[at + 1 : end])
                at = end
            self._require_values(name, option, values, field)

    def setting(self, name: str) -> str:
        """The setting of an option or alias: `tp_size` for `--tensor-parallel-size`."""
        option = self.options.get(name)
        return option.sets if option is not None and option.sets else name.removeprefix("--").replace("-", "_")

    def require_once(self, written: Iterable[str], further: Iterable[str], field: str) -> None:
        """Raises ConfigError, naming `field`, for a further option with the same setting as a written one."""
        settings = {self.setting(name): name for name in written}
        for name in further:
            if (already := settings.get(self.setting(name))) is not None:
                raise ConfigError(
                    f"{field}: {name} would appear twice: a setting writes {already} already; change that one",
                    param=field,
                )

    def _require_values(self, name: str, option: Option, values: Sequence[str], field: str) -> None:
        if option.values not in (ANY, len(values)):
            raise UnknownOption(
                f"{field}: {name} of release {self.version} takes {option.values or 'no'} value, not {len(values)}",
                param=field,
            )
        for value in values:
            if option.choices and value not in option.choices:
                raise UnknownOption(
                    f"{field}: {name} of release {self.version} is one of {', '.join(option.choices)}, not {value!r}",
                    param=field,
                )


def known_options(engine: str, version: str = "", field: str = "") -> KnownOptions:
    """The options of the release that commands are checked against. engine: `sglang` or `vllm`.

    Raises UnknownOption, naming `field`, for another `version`, whose options are not known.
    """
    found = msgspec.json.decode((Path(__file__).parent / f"{engine}.json").read_bytes(), type=KnownOptions)
    if version not in ("", found.version):
        raise UnknownOption(
            f"{field}: commands are checked against the parser of release {found.version}, not of {version}; leave it "
            f"empty, or read that parser with tools/launch/options/read_{engine}.py",
            param=field,
        )
    return found
