"""``moeplan plan`` (that is ``--auto`` and ``--fit``) and ``moeplan check``."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from planner.cli.guard import note, product
from planner.cli.options import MeasureOptions, OutputOptions, PlanOptions
from planner.cli.show import as_form, as_text
from planner.errors import OptionError
from planner.facts.workload import Target
from planner.plans.settings import Tool

if TYPE_CHECKING:
    from emit.formats import Format
    from planner.pipeline import Request
    from planner.plans.plan import Plan

MODEL = typer.Argument(metavar="MODEL", help="A GGUF file, any shard of a split one, or an https:// URL.")


def plan(
    model: Annotated[str, MODEL],
    options: PlanOptions,
    measuring: MeasureOptions,
    out: OutputOptions,
    auto: Annotated[
        bool, typer.Option("--auto/--fit", help="Measure the machine, or take stored and assumed rates.")
    ] = True,
) -> None:
    """Decide how to start llama.cpp, and say why."""
    from planner import pipeline

    targets = out.targets()
    request = request_of(model, options, measuring, out, timed=auto, confirm=auto)
    deliver(pipeline.make_plan(request), targets, out, options.inputs)


def check(
    model: Annotated[str, MODEL],
    options: PlanOptions,
    measuring: MeasureOptions,
    out: OutputOptions,
    flags: Annotated[
        list[str] | None, typer.Argument(metavar="-- FLAGS...", help="The llama.cpp command line, after --.")
    ] = None,
    tool: Annotated[Tool, typer.Option(help="The program they are for.")] = Tool.SERVER,
) -> None:
    """Predict memory and speed of your own flags, and lint them."""
    from planner import pipeline

    targets = out.targets()
    if options.target in set(Target) - {Target.LLAMA_CPP}:
        raise OptionError("--target", expected="llama.cpp or a build of it", found=f"flags of {options.target}")
    request = request_of(model, options, measuring, out, timed=measuring.asked, confirm=True)
    deliver(pipeline.check(request, tuple(flags or ()), tool), targets, out, options.inputs)


def request_of(
    model: str,
    options: PlanOptions,
    measuring: MeasureOptions,
    out: OutputOptions,
    *,
    timed: bool,
    confirm: bool,
) -> Request:
    """Measures only where ``timed`` and asks the engine only where ``confirm``; never for a recorded machine.

    Raises OptionError.
    """
    from planner.pipeline import Request
    from planner.plans.oracle import Ask

    if options.machine is not None and measuring.asked:
        raise OptionError("--machine", found="nothing is measured there", advice="leave out --refresh and --probe-mem")
    if not timed and measuring.asked:
        raise OptionError("--fit", found="it measures nothing", advice="--auto does")
    measure = measuring.measure(quiet=out.quiet) if timed else None
    ask = Ask.NEVER if options.no_oracle else Ask.CALL if confirm else Ask.STORED
    return Request(model, options.workload(), options.machine, options.llama, measure, ask, options.routing)


def deliver(
    plan: Plan, targets: tuple[tuple[Format, str], ...], out: OutputOptions, inputs: tuple[str | None, ...] = ()
) -> None:
    """Write every form to its file or to stdout; a refusal ends with exit code 1.

    Args:
        inputs: files that were read, beside the model, and are not to be overwritten.
    """
    from planner.plans.plan import Verdict

    write_forms(partial(_rendered, plan, out), targets, out, (*plan.model.shards, *inputs))
    if plan.verdict is Verdict.REFUSED:
        raise typer.Exit(1)


def check_forms(plan: Plan, targets: tuple[tuple[Format, str], ...], keep: tuple[str | None, ...]) -> None:
    """That every form can hold the plan and be written, as far as that shows before a long run.

    Raises:
        OutputError: a file that cannot be written.
        EngineError, OptionError: a form that cannot hold the plan.
    """
    from emit.formats import Format
    from planner.files import check_output

    for form, path in targets:
        if form is not Format.TEXT:
            as_form(plan, form)
        if path != "-":
            check_output(path, keep)


def write_forms(
    rendered: Callable[[Format, bool], str],
    targets: tuple[tuple[Format, str], ...],
    out: OutputOptions,
    keep: tuple[str | None, ...],
) -> None:
    """Write every form to its file or to stdout; nothing where one of them cannot be made.

    Args:
        rendered: the text of a form, for a terminal or for a file.
        keep: files that are not to be overwritten.
    """
    from planner.files import write_file

    texts = [rendered(form, path == "-") for form, path in targets]
    for (form, path), text in zip(targets, texts, strict=True):
        if path == "-":
            product(text)
            continue
        write_file(path, text, keep)
        if not out.quiet:
            note(f"{form}: written to {path}")


def _rendered(plan: Plan, out: OutputOptions, form: Format, terminal: bool) -> str:
    from emit.formats import Format

    if form is not Format.TEXT:
        return as_form(plan, form)
    from emit.text import check_view, plan_view

    view = plan_view if plan.lint is None else check_view
    return as_text(view(plan, why=out.why), terminal=terminal, no_color=out.no_color)
