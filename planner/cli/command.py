"""A command as Typer runs it, stricter with numbers, and with a word more where llama.cpp's flags are misplaced."""

from __future__ import annotations

from typing import Any, Final

import typer
from typer.core import TyperCommand

_NUMBERS: Final = ("int", "float")
"""How the names of Typer's types of numbers begin."""


class Command(TyperCommand):
    """Numbers are of ASCII digits; a command that takes llama.cpp's flags says that they go after ``--``."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        usage_error: Any = typer.BadParameter.__bases__[0]
        separated = "--" in args
        try:
            self._check_digits(ctx, args)
            return super().parse_args(ctx, args)
        except usage_error as error:
            if hasattr(error, "option_name") and not separated and self._takes_flags():
                error.message += f" (flags of llama.cpp go after --: moeplan {self.name} MODEL -- -c 4096)"
            raise

    def _check_digits(self, ctx: Any, args: list[str]) -> None:
        """Python reads any script's digits as a number."""
        values = self.make_parser(ctx).parse_args(args=list(args))[0]
        for option in self.params:
            text = values.get(option.name or "", "")
            if option.type.name.startswith(_NUMBERS) and isinstance(text, str) and not text.isascii():
                raise typer.BadParameter(f"{text!r} is not of ASCII digits.", ctx=ctx, param=option)

    def _takes_flags(self) -> bool:
        return any("-- " in str(getattr(option, "metavar", "")) for option in self.params)
