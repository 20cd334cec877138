"""``moeplan run`` and ``moeplan verify``: a plan on the real engine."""

from __future__ import annotations

import sys
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from planner.cli.guard import complain, note, piece, product
from planner.cli.options import MeasureOptions, OutputOptions, PlanOptions, seconds
from planner.cli.planning import check_forms, deliver, request_of, write_forms
from planner.cli.show import as_form, as_text
from planner.errors import Ended, MoeplanError, OptionError

if TYPE_CHECKING:
    from emit.formats import Format
    from planner.pipeline import Options, Request, Running
    from planner.plans.plan import Plan
    from planner.plans.verified import Verification

MODEL = typer.Argument(metavar="MODEL|PLAN.json", help="A GGUF file, or a plan or verification written with --json.")
PROBES_S = 20.0
"""What timed probes may take before the first answer, which should come within a minute."""
OWN = typer.Argument(metavar="[-- ARGS...]", help="More arguments for llama-server, after --; --port among them.")


@dataclass(frozen=True, slots=True)
class VerifyOptions:
    """One field per option."""

    prompt: Annotated[
        str | None, typer.Option(metavar="TEXT|@FILE", help="The first question; default: one of ours.")
    ] = None
    max_trials: Annotated[int, typer.Option(min=0, max=100, metavar="N", help="Trials at most; 0 tries nothing.")] = 6
    budget: Annotated[
        float,
        typer.Option(
            min=0, max=86400, callback=seconds, metavar="SECONDS", help="What the long prompt and trials may take."
        ),
    ] = 480.0
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print the plan, what would be tried and what it takes.")
    ] = False
    refresh: Annotated[bool, typer.Option("--refresh", help="Measure the machine again before.")] = False

    @property
    def measuring(self) -> MeasureOptions:
        """Timed probes before the plan. They are not what makes the user wait for the first answer."""
        return MeasureOptions(budget=PROBES_S, refresh=self.refresh)


def run(
    model: Annotated[str, MODEL],
    options: PlanOptions,
    verifying: VerifyOptions,
    out: OutputOptions,
    own: Annotated[list[str] | None, OWN] = None,
    auto: Annotated[bool, typer.Option("--auto/--fit", help="Measure the machine before, or do not.")] = True,
) -> None:
    """Start llama-server with a plan, verify it on the first answer, and go on serving.

    What changes only speed is tried and kept if it is faster; what does not hold is stepped back from.
    """
    request = request_of(model, options, verifying.measuring, out, timed=auto, confirm=auto)
    _verify(request, verifying, out, own, serve=True)


def verify(
    model: Annotated[str, MODEL],
    options: PlanOptions,
    verifying: VerifyOptions,
    out: OutputOptions,
    own: Annotated[list[str] | None, OWN] = None,
    auto: Annotated[bool, typer.Option("--auto/--fit", help="Measure the machine before, or do not.")] = True,
) -> None:
    """Verify a plan on the real engine, then stop. The next plan takes over what was learned."""
    request = request_of(model, options, verifying.measuring, out, timed=auto, confirm=auto)
    _verify(request, verifying, out, own, serve=False)


class _Terminal:
    """Progress on stderr, the first answer where people look for it.

    Args:
        aloud: the answer goes to stdout; else to stderr, as stdout holds data.
    """

    def __init__(self, *, quiet: bool, aloud: bool) -> None:
        self._quiet, self._aloud = quiet, aloud

    def note(self, text: str) -> None:
        if not self._quiet:
            note(text)

    def hear(self, text: str) -> None:
        if self._aloud:
            piece(sys.stdout, text)
        elif not self._quiet:
            piece(sys.stderr, text)

    def heard(self) -> None:
        self.hear("\n\n")


def _verify(
    request: Request, verifying: VerifyOptions, out: OutputOptions, own: list[str] | None, *, serve: bool
) -> None:
    from planner import pipeline

    targets, wanted = out.targets(), _options(verifying, own, serve=serve)
    aloud = any(form == "text" and path == "-" for form, path in targets)
    terminal = _Terminal(quiet=out.quiet, aloud=aloud)
    hear = terminal.note if serve and not verifying.dry_run else _unsaid
    plan = replace(pipeline.plan_to_start(request, hear), port=wanted.own.port)
    inputs = (request.model, request.machine_file, request.routing)
    if plan.refusal is not None:
        deliver(plan, targets, out, inputs)
    if verifying.dry_run:
        _dry_run(plan, wanted, targets, out, inputs)
        return
    check_forms(plan, targets, (*plan.model.shards, *inputs))
    with pipeline.verifying(plan, wanted, terminal) as running:
        lost = _deliver(running.verification, targets, out, inputs)
        if not aloud and not out.quiet:
            note(f"{running.verification.word}: {running.verification.reason}")
        if running.verification.url is not None:
            _serve(running, out)
        elif serve and running.verification.finding in ("verified", "slower") and not out.quiet:
            note("the embedded engine has no server to go on with: --llama names a llama-server")
    from planner.plans.verified import Finding

    if lost:
        raise typer.Exit(lost)
    if running.verification.finding is not Finding.VERIFIED:
        raise typer.Exit(1)


def _unsaid(_: str) -> None:
    """Nothing is to go on serving."""


def _serve(running: Running, out: OutputOptions) -> None:
    """Until the server ends, or the user ends it, which is how serving is meant to end."""
    if not out.quiet:
        note(f"serving at {running.verification.url} (Ctrl-C ends it)")
    try:
        trouble = running.wait()
    except (KeyboardInterrupt, Ended):
        return
    if trouble is not None:
        complain(f"the server ended: {trouble.text}")
        for line in trouble.lines:
            note(f"  {line}")
        raise typer.Exit(3)


def _options(verifying: VerifyOptions, own: list[str] | None, *, serve: bool) -> Options:
    from planner.pipeline import verify_options

    found = verify_options(tuple(own or ()))
    prompt = None if verifying.prompt is None else _prompt(verifying.prompt)
    return replace(found, prompt=prompt, max_trials=verifying.max_trials, budget_s=verifying.budget, serve=serve)


def _prompt(text: str) -> str:
    """The text of ``--prompt TEXT|@FILE``. Raises OptionError."""
    if text == "@":
        raise OptionError("--prompt", expected="a text, or a file after @", found="'@' alone")
    if text.startswith("@"):
        from planner.files import text_of

        return text_of(text[1:], OptionError)
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:  # Python keeps other bytes of a command line as surrogates
        raise OptionError("--prompt", expected="UTF-8 text", found=f"another byte at {error.start}") from error
    return text


def _deliver(
    found: Verification, targets: tuple[tuple[Format, str], ...], out: OutputOptions, inputs: tuple[str | None, ...]
) -> int:
    """Write every form; what cannot be written after all goes to stderr, and its exit code comes back, 0 if all was."""
    lost = 0
    try:
        write_forms(partial(_rendered, found, out), targets, out, (*found.plan.model.shards, *inputs))
    except (MoeplanError, typer.Exit) as error:
        lost = error.exit_code
        if isinstance(error, MoeplanError):
            complain(str(error))
        from emit.formats import Format

        form = Format.JSON if any(form is Format.JSON for form, _ in targets) else Format.TEXT
        note(_rendered(found, out, form, terminal=False))
    from emit.verified_view import kept_words

    kept = kept_words(found)
    if kept and not out.quiet and all(form != "json" for form, _ in targets):
        note(f"kept for the next plan: {kept}; --json -o FILE writes the verified plan, which run takes as it is")
    return lost


def _rendered(found: Verification, out: OutputOptions, form: Format, terminal: bool) -> str:
    """The verification as text or JSON; every other form is that of the plan that was kept."""
    from emit.formats import Format

    if form is Format.JSON:
        from emit.json_v1 import verified_json

        return verified_json(found)
    if form is not Format.TEXT:
        return as_form(found.plan, form)
    from emit.verified_view import verification_view

    return as_text(verification_view(found, why=out.why), terminal=terminal, no_color=out.no_color)


def _dry_run(
    plan: Plan,
    options: Options,
    targets: tuple[tuple[Format, str], ...],
    out: OutputOptions,
    inputs: tuple[str | None, ...],
) -> None:
    """The plan in its forms, and what would be tried after it."""
    from emit.verified_view import foreseen_view
    from planner import pipeline

    deliver(plan, targets, out, inputs)
    found = pipeline.would_try(plan, options)
    text = as_text(foreseen_view(found), terminal=True, no_color=out.no_color)
    if all(form == "text" for form, _ in targets):
        product(text)
    elif not out.quiet:
        note(text)
