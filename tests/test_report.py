"""The page says what was measured, says what is missing, and refuses to compare unlike runs."""

from __future__ import annotations

import base64
import gzip
import json
import re
import shutil
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from breakeven.errors import DataError, OutputExistsError
from breakeven.measure.bench import run_bench
from breakeven.measure.configuration import cross
from breakeven.report.entries import entries_of
from breakeven.report.findings import verdict_of
from breakeven.report.page import load_report, render, write_report
from breakeven.report.run import CONSEQUENCES, load_run
from fake_run import FAKES, Fake, write_run
from measuring import loaded, prompts

MOST_BYTES = 1_500_000


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_run(tmp_path_factory.mktemp("runs") / "whole")


@pytest.fixture
def run(whole: Path, tmp_path: Path) -> Path:
    """A copy that a test may spoil."""
    return shutil.copytree(whole, tmp_path / "run")


@pytest.fixture(scope="module")
def page(whole: Path) -> str:
    return render(load_report([whole]))


class Outline(HTMLParser):
    """Ids, references and whether every opened tag is closed."""

    VOID = frozenset({"meta", "link", "br", "use", "path", "rect", "line", "circle", "polyline"})

    def __init__(self, text: str) -> None:
        super().__init__()
        self.ids: list[str] = []
        self.references: list[str] = []
        self.links: list[str] = []
        self.open: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        known = {name: value or "" for name, value in attrs}
        self.ids += [known["id"]] if "id" in known else []
        self.references += known.get("aria-labelledby", "").split()
        self.links += [known[name] for name in ("href", "src") if name in known]
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in self.VOID:
            self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        if tag not in self.VOID:
            assert self.open.pop() == tag


def change(run: Path, name: str, **fields: Any) -> None:
    file = run / name
    file.write_text(json.dumps(json.loads(file.read_text()) | fields))


def test_the_page_is_well_formed_and_its_references_lead_somewhere(page: str) -> None:
    outline = Outline(page)
    assert not outline.open
    assert len(outline.ids) == len(set(outline.ids))
    inside = [link[1:] for link in outline.links if link.startswith("#")]
    assert {*outline.references, *inside} <= set(outline.ids)


def test_the_page_needs_nothing_from_anywhere(page: str) -> None:
    assert all(link.startswith(("#", "data:")) for link in Outline(page).links)
    assert not re.findall(r"url\((?!#)|@import|https?://(?!www\.w3\.org)", page)
    assert "default-src 'none'" in page
    assert len(page.encode()) < MOST_BYTES


def test_the_verdict_stands_on_top_and_the_definitions_beside_the_figures(page: str) -> None:
    main = page[page.index("<main>") :]
    assert main.index("It pays: ngram-k3") < main.index('<svg class="chart')
    for text in (
        "tokens committed / verify passes, bonus token included",
        "accepted drafts / drafted tokens",
        "speed of the configuration / speed of plain decoding, paired by prompt",
        "breakeven bench --artifact assets/smollm2-135m --out runs/demo",
        "AMD EPYC 7763",
    ):
        assert text in main


@pytest.mark.parametrize("fake", FAKES, ids=lambda fake: fake.name)
def test_every_configuration_is_in_every_figure(page: str, fake: Fake) -> None:
    for figure in ("speed", "price", "ratios", "survival", "cost0", "tables"):
        start = page.index(f'id="{figure}"')
        assert fake.name in page[start : page.index("</section>", start)], figure


def test_the_data_can_be_taken_out_again(page: str, whole: Path) -> None:
    links = dict(re.findall(r'<a download="([^"]+)" href="data:[^;]+;base64,([^"]+)"', page))
    for name in ("performance.csv", "audit.json", "configuration.json"):
        assert base64.b64decode(links[name]) == (whole / name).read_bytes()
    rows = gzip.decompress(base64.b64decode(links["requests.jsonl.gz"])).splitlines()
    assert len(rows) == len((whole / "requests.jsonl").read_bytes().splitlines())
    assert "token_ids" not in json.loads(rows[0])


def test_text_from_files_cannot_become_markup(run: Path) -> None:
    change(run, "verdict.json", sentence="<script>alert(1)</script>")
    change(run, "configuration.json", command="<img src=x>")
    text = render(load_report([run]))
    assert "<script>alert" not in text
    assert "<img" not in text


def test_the_layout_of_a_drafters_rows_is_shown_and_counts(run: Path) -> None:
    """K = 4, of which 2 are verified; a group for each of the 3 outcomes."""
    layout = {"groups": 5, "masks": 2, "drafts": 2}
    config = json.loads((run / "configuration.json").read_text())
    for entry in config["configurations"]:
        if entry["drafter"] == "peft-bd-fused":
            entry["layout"] = layout
        elif entry["drafter"] == "ngram":
            entry["layout"] = {"masks": 10**30, "groups": "many", "drafts": None}
    change(run, "configuration.json", configurations=config["configurations"])
    assert "<small>groups 5, masks 2, drafts 2</small>" in render(load_report([run]))
    rows = {e.name: e.verify_rows for e in entries_of([load_run(run)])}
    assert rows["peft-bd-fused-k4"] == 3 + 3 * 2
    assert rows["ngram-k3"] == 4


@pytest.mark.parametrize("name", sorted(CONSEQUENCES))
def test_a_missing_file_costs_its_figures_only(run: Path, name: str) -> None:
    (run / name).unlink()
    text = render(load_report([run]))
    assert f"<code>{name}</code> missing: {CONSEQUENCES[name]}" in text.replace("&#39;", "'")
    assert 'id="speed"' in text or name == "performance.csv"


@pytest.mark.parametrize("name", sorted(CONSEQUENCES))
def test_a_file_cut_in_the_middle_is_said(run: Path, name: str) -> None:
    content = (run / name).read_bytes()
    (run / name).write_bytes(content[: len(content) // 2])
    report = load_report([run])
    assert render(report)
    said = [note for _, note in report.notes if note.file == name]
    assert said or name in ("performance.csv", "acceptance.csv", "cost_curve.csv")


@pytest.mark.parametrize("name", sorted(CONSEQUENCES))
@pytest.mark.parametrize("content", [b"\xff\xfe\x00", b"[1, 2", b"a,b\n1\n"])
def test_nonsense_in_a_file_never_ends_the_page(run: Path, name: str, content: bytes) -> None:
    (run / name).write_bytes(content)
    assert render(load_report([run]))


def test_requests_are_read_up_to_the_cut(run: Path) -> None:
    lines = (run / "requests.jsonl").read_bytes().splitlines(keepends=True)
    (run / "requests.jsonl").write_bytes(b"".join(lines[:10]) + lines[10][:40])
    read = load_run(run)
    assert len(read.requests) == 10
    (note,) = read.notes
    assert note.text == "cut off at line 11; read before it: 10 requests"


def test_without_a_verdict_it_is_read_off_the_ratios(run: Path) -> None:
    (run / "verdict.json").unlink()
    found = verdict_of(load_run(run))
    assert (found.verdict, found.best) == ("pays", "ngram-k3")
    change_audit(run, "ngram-k3", "bug")
    assert verdict_of(load_run(run)).best == "peft-bd-fused-k4"


def change_audit(run: Path, config: str, verdict: str) -> None:
    audits = json.loads((run / "audit.json").read_text())
    for audit in audits:
        audit["verdict"] = verdict if audit["config"] == config else audit["verdict"]
    (run / "audit.json").write_text(json.dumps(audits))


def test_wrong_output_is_said_before_any_speed(run: Path) -> None:
    change_audit(run, "fastmtp-k3", "bug")
    text = render(load_report([run]))
    assert text.index("Wrong output from fastmtp-k3") < text.index('id="speed"')


def test_nothing_usable_is_said(run: Path) -> None:
    nothing = {"best": None, "ratio": None, "ratio_low": None, "ratio_high": None}
    change(run, "verdict.json", verdict="not usable", sentence="Not usable: a bug.", **nothing)
    for config in (fake.name for fake in FAKES):
        change_audit(run, config, "bug")
    text = render(load_report([run]))
    assert 'class="verdict bad"' in text
    assert "<dt>same output?</dt><dd>no<small>all: 5 bug" in text


@pytest.mark.parametrize("value", [None, "text", 3, ["a", None], {"k": "text"}])
def test_fields_of_another_kind_never_end_the_page(run: Path, value: Any) -> None:
    found = json.loads((run / "configuration.json").read_text())
    (run / "configuration.json").write_text(json.dumps(dict.fromkeys(found, value)))
    assert render(load_report([run]))


@pytest.mark.parametrize("value", [None, -1, ["a"], {}, "\ud800"])
def test_fields_of_a_configuration_of_another_kind_never_end_the_page(
    run: Path, value: Any, tmp_path: Path
) -> None:
    found = json.loads((run / "configuration.json").read_text())
    for name in found["configurations"][0]:
        entries = [{**entry, name: value} for entry in found["configurations"]]
        change(run, "configuration.json", configurations=entries)
        write_report([run], tmp_path / "page.html", force=True)


def test_half_a_surrogate_pair_never_ends_the_page(run: Path, tmp_path: Path) -> None:
    change(run, "verdict.json", sentence="It pays \ud800.")
    write_report([run], tmp_path / "page.html", force=True)
    assert "It pays ?." in (tmp_path / "page.html").read_text(encoding="utf-8")


def test_a_quartile_without_end_never_ends_the_page(run: Path) -> None:
    lines = (run / "cost_curve.csv").read_text().splitlines()
    rows, context, seconds, low, _, relative = lines[3].split(",")
    lines[3] = ",".join((rows, context, seconds, low, "inf", relative))
    (run / "cost_curve.csv").write_text("\n".join(lines) + "\n")
    assert render(load_report([run]))


def test_figures_out_of_range_never_end_the_page(run: Path) -> None:
    file = run / "performance.csv"
    for bad in ("nan", "-1", "1e12"):
        lines = file.read_text().splitlines()
        spoilt = [",".join([*line.split(",")[:2], *[bad] * 10]) for line in lines[1:]]
        (run / "performance.csv").write_text("\n".join([lines[0], *spoilt]))
        assert render(load_report([run]))


def test_a_busy_machine_is_said(run: Path) -> None:
    machine = json.loads((run / "configuration.json").read_text())["machine"]
    change(run, "configuration.json", machine=machine | {"load_1m_start": 3.2, "threads": 4})
    text = render(load_report([run]))
    assert "load 3.2" in text
    assert "4 threads on 2 cores" in text


def test_the_benchmarks_own_warnings_win(run: Path) -> None:
    change(run, "configuration.json", warnings=["only 6 prompts"])
    assert "<li>only 6 prompts</li>" in render(load_report([run]))


def test_a_doubt_stands_once_on_the_page(run: Path) -> None:
    change(run, "configuration.json", warnings=["only 6 prompts", "only 6 prompts"])
    reasons = ["doubt: only 6 prompts", "doubt: audit.json is missing"]
    change(run, "verdict.json", reasons=reasons)
    text = render(load_report([run]))
    assert text.split("<script")[0].count("only 6 prompts") == 1
    assert "doubt: audit.json is missing" in text, "what no other place says stays"


def test_runs_of_one_kind_are_compared(whole: Path, tmp_path: Path) -> None:
    other = write_run(tmp_path / "other", FAKES[:2], seed=3)
    report = load_report([whole, other])
    names = [entry.name for entry in report.entries]
    assert names[0] == "ngram-k3 · whole"
    assert "fastmtp-k3" in names
    assert len({entry.mark for entry in report.entries}) == len(names) == 7
    text = render(report)
    assert Outline(text).open == []
    assert "plain decoding · other" in text


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("verifier", {"name": "smollm2-135m", "weights_sha256": "0" * 64}),
        ("verifier", {"name": "qwen3-0.6b", "weights_sha256": "5af1" * 16}),
        ("mode", "compiled"),
        ("prompts", 12),
        ("split", "validation"),
        ("max_new_tokens", 32),
    ],
)
def test_unlike_runs_are_refused(whole: Path, run: Path, field: str, value: Any) -> None:
    change(run, "configuration.json", **{field: value})
    with pytest.raises(DataError, match=f"{field}.* differs"):
        load_report([whole, run])


def test_other_prompts_are_refused(whole: Path, tmp_path: Path) -> None:
    other = write_run(tmp_path / "other", prompts=2)
    change(other, "configuration.json", prompts=24)
    with pytest.raises(DataError, match="prompt ids differs"):
        load_report([whole, other])


def test_another_machine_is_said_and_allowed(whole: Path, run: Path) -> None:
    machine = json.loads((run / "configuration.json").read_text())["machine"]
    change(run, "configuration.json", machine=machine | {"cpu": "another"})
    assert "compare ratios, not tokens per second" in render(load_report([whole, run]))


def test_a_folder_that_is_no_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no result file"):
        load_report([tmp_path])
    with pytest.raises(DataError, match="no such folder"):
        load_report([tmp_path / "absent"])


def test_an_existing_page_is_kept_without_force(whole: Path, tmp_path: Path) -> None:
    out = tmp_path / "report.html"
    assert write_report([whole], out).bytes == out.stat().st_size
    with pytest.raises(OutputExistsError, match="--force"):
        write_report([whole], out)
    with pytest.raises(OutputExistsError, match="is a folder"):
        write_report([whole], tmp_path, force=True)
    assert write_report([whole], out, force=True).notes == []


def test_large_requests_stay_outside(whole: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("breakeven.report.download.MOST", 9_000)
    text = render(load_report([whole]))
    assert "too large for the page" in text


def test_a_real_benchmark_run_is_drawn_whole(tmp_path: Path) -> None:
    out = tmp_path / "bench"
    run_bench(
        loaded(), prompts(4), cross(["ngram"], [2, 4]), out, repeats=1, max_new_tokens=12,
        command="breakeven bench --drafter ngram",
    )  # fmt: skip
    report = load_report([out])
    assert report.notes == []
    text = render(report)
    for part in ("speed", "price", "ratios", "survival", "cost0", "audit", "tables"):
        assert f'id="{part}"' in text
    assert "ngram-k2" in text
