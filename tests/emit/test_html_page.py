from __future__ import annotations

import re
from dataclasses import replace
from html.parser import HTMLParser

import pytest
from hypothesis import given
from hypothesis import strategies as st

from emit import argv, shell, wording
from emit.html_page import html_page
from emit.html_words import text
from planner.facts.workload import Target, Workload
from planner.plans.decision import Confidence
from planner.plans.plan import Caution, Exchange, Lint, Plan
from tests.builders import make_model
from tests.emit.plans import NASTY, make_decision, make_plan, measured_machine, refused_plan

EVIL = "</script></code></pre><script>alert(1)</script><img src=x onerror=alert(1)> & \" ' `${x}` --> ]]>"
VOID = {"meta"}


class Page(HTMLParser):
    """What a browser would see: elements with attributes, text, and that everything is closed."""

    def __init__(self, source: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text, self.open, self.code = "", [], ""  # type: ignore[var-annotated]
        self.feed(source)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data
        if "pre" in self.open:
            self.code += data


def evil_plan() -> Plan:
    """Every string that comes from a file or a machine is hostile."""
    model = make_model(path=f"/m/{EVIL}.gguf", name=EVIL, arch=EVIL)
    machine = measured_machine()
    decision = make_decision(headline=EVIL, rule=EVIL, value=EVIL, setting=EVIL)
    plan = make_plan(model, machine, decisions=(decision,), cautions=(Caution(EVIL, EVIL),))
    plan = replace(plan, exchange=(Exchange(EVIL, EVIL),), lint=(Lint(EVIL, EVIL, EVIL, EVIL),))
    memory = replace(plan.chosen.memory, devices=tuple(replace(d, id=EVIL) for d in plan.chosen.memory.devices))
    return replace(plan, chosen=replace(plan.chosen, memory=memory))


@pytest.mark.parametrize("plan", [make_plan(), refused_plan(), evil_plan()])
def test_nothing_runs_and_nothing_is_fetched(plan: Plan) -> None:
    page = Page(html_page(plan))
    assert {tag for tag, _ in page.tags} <= {
        "html", "head", "meta", "title", "style", "body", "h1", "h2", "p", "pre", "code", "table", "tr", "th", "td",
        "div", "span", "ul", "li", "details", "summary",
    }  # fmt: skip
    names = {name for _, attributes in page.tags for name in attributes}
    assert names <= {"lang", "charset", "http-equiv", "content", "name", "class", "style", "title"}
    policy = next(a["content"] for tag, a in page.tags if tag == "meta" and a.get("http-equiv"))
    assert policy is not None and policy.startswith("default-src 'none'")
    styles = [value for _, attributes in page.tags if (value := attributes.get("style"))]
    assert all(re.fullmatch(r"width:\d+\.\d\d%", value) for value in styles)


def test_hostile_words_are_shown_as_they_are() -> None:
    assert Page(html_page(evil_plan())).text.count(EVIL) >= 8


@pytest.mark.parametrize("path", NASTY)
def test_the_command_can_be_copied(path: str) -> None:
    plan = make_plan(make_model(path=path))
    lines = shell.command(argv.program(plan), argv.flags(plan)).split("\n")
    assert Page(html_page(plan)).code == "\n".join(map(wording.clean, lines))


@given(st.text(max_size=40))
def test_text_comes_back_as_text(words: str) -> None:
    assert Page(f"<p>{text(words)}</p>").text == wording.clean(words)


def test_it_holds_what_the_text_holds() -> None:
    plan = make_plan()
    page = Page(html_page(plan))
    for part in ("Fits: Hand made on CUDA0", "CUDA0 would be 1 MiB short", "does not fit", "Mind the gap.",
                 "decode -2%", "used before", "rule experts", "all experts"):  # fmt: skip
        assert part in page.text, part
    widths = [float(a["style"][6:-1]) for _, a in page.tags if a.get("style")]  # type: ignore[index]
    assert 198 < sum(widths) < 202, "a bar for the card and one for RAM, each full"


def test_what_loses_or_guesses_is_marked_in_the_table() -> None:
    doubtful = make_decision(lossless=False, confidence=Confidence.ASSUMED)
    page = Page(html_page(make_plan(decisions=(doubtful,))))
    assert f"{doubtful.headline} (lossy) (assumed)" in page.text


def test_a_refusal_shows_what_would_fit() -> None:
    page = Page(html_page(refused_plan()))
    assert "What would fit" in page.text and "-c 2048" in page.code and "refused" in html_page(refused_plan())


def test_another_engine() -> None:
    assert Page(html_page(make_plan(workload=Workload(target=Target.BIGMOE)))).code.startswith("bmoe-cli")
