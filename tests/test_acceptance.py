"""Acceptance: what counts, before and after truncation (T24)."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from breakeven.drafters.base import Drafter
from breakeven.drafters.scripted import AntiOracle, FlipAt, Oracle, Short, Synthetic
from breakeven.errors import DataError
from breakeven.measure.acceptance import Acceptance, acceptance_table
from breakeven.measure.configuration import Configuration
from breakeven.measure.profiles import speculation_profile
from breakeven.measure.records import Record, RecordFile, read_records
from breakeven.measure.trial import Decoding, Method
from measuring import VOCAB, decoding, prompts, script_of

ROWS = prompts(3)


def measured(drafter: str, k: int, tokens: int, eos: frozenset[int] = frozenset()) -> list[Record]:
    """Records of one scripted drafter on :data:`ROWS`."""
    machine = decoding(tokens=tokens)
    script = script_of(machine, ROWS)
    drafters: dict[str, Drafter] = {
        "oracle": Oracle(script, VOCAB),
        "anti": AntiOracle(script, VOCAB),
        "flip": FlipAt(script, VOCAB, 2),
        "short": Short(script, VOCAB),
        "dice": Synthetic(script, VOCAB, [0.7, 0.4]),
    }
    machine = Decoding(machine.verifier, eos, tokens)
    method = Method(f"{drafter}-k{k}", drafters[drafter], k)
    return [Record.of(method.name, 0, row, *machine.run(method, row)) for row in ROWS]


def whole(records: list[Record]) -> Acceptance:
    return Acceptance.of(records[0].config, "all", records)


def test_a_scripted_histogram_is_found() -> None:
    # 13 tokens: the first from prefill, then four rounds of 2 accepted drafts and the correction
    found = whole(measured("flip", k=4, tokens=13))
    assert found.rounds == 3 * 4
    assert found.accepted_histogram == (0, 0, 12)
    assert found.acceptance_length == 3.0
    assert found.survival(4) == (1.0, 1.0, 0.0, 0.0)


def test_the_last_round_is_cut_to_the_budget() -> None:
    # 12 tokens: the fourth round has room for 2, so it drafts 1
    [record, *_] = measured("flip", k=4, tokens=12)
    assert (record.tokens, record.committed, record.rounds) == (12, 11, 4)
    assert record.accepted == 2 + 2 + 2 + 1
    assert record.drafted_histogram == (0, 1, 0, 0, 3)


@pytest.mark.parametrize("drafter", ["oracle", "anti", "flip", "short", "dice"])
@pytest.mark.parametrize("k", [1, 3, 8])
def test_the_numbers_belong_together(drafter: str, k: int) -> None:
    records = measured(drafter, k, tokens=20)
    found = whole(records)
    assert found.acceptance_length == pytest.approx(1 + found.accepted / found.rounds)
    assert sum(found.accepted_histogram) == found.rounds
    assert found.accepted == sum(a * n for a, n in enumerate(found.accepted_histogram))
    assert 0.0 <= found.acceptance_rate <= 1.0
    assert sum(found.survival(k)) == pytest.approx(found.accepted / found.rounds)
    for record in records:
        assert sum(record.drafted_histogram) == sum(record.accepted_histogram) == record.rounds
        assert record.committed == record.tokens - 1


@pytest.mark.parametrize("k", [2, 4, 8])
def test_truncation_by_an_end_token_counts_only_what_was_kept(k: int) -> None:
    answer = next(iter(script_of(decoding(tokens=20), ROWS[:1]).values()))
    ends = frozenset(answer[5:6])
    records = measured("oracle", k, tokens=20, eos=ends)
    found = whole(records)
    assert records[0].finish == "stop"
    assert records[0].committed == records[0].tokens - 1
    lost = found.accepted + found.rounds - found.committed
    assert 0 <= lost <= k * len(records)
    assert found.acceptance_length <= 1 + found.accepted / found.rounds


def test_plain_decoding_commits_one_token_a_pass() -> None:
    machine = decoding()
    record = Record.of("ar", 0, ROWS[0], *machine.run(Method(), ROWS[0]))
    found = whole([record])
    assert found.acceptance_length == 1.0
    assert (record.rounds, record.drafted, record.draft_s) == (record.tokens - 1, 0, 0.0)
    assert acceptance_table([record], ["ar"]) == []


def test_times_of_a_record_add_up() -> None:
    for record in measured("dice", k=4, tokens=20):
        assert record.decode_s == pytest.approx(record.draft_s + record.verify_s + record.other_s)
        assert record.prefill_s > 0


def test_nothing_drafted_is_not_a_rate() -> None:
    row = Acceptance("x-k2", "all", 0, 0, 0, 0, ()).row(2)
    assert row["acceptance_rate"] != row["acceptance_rate"]  # NaN
    assert row["acceptance_length"] != row["acceptance_length"]


counts = st.lists(st.integers(0, 50), min_size=1, max_size=6)


@given(counts)
def test_survival_never_rises_and_sums_to_the_mean(histogram: list[int]) -> None:
    rounds, k = sum(histogram), len(histogram) - 1
    if not rounds:
        return
    accepted = sum(a * n for a, n in enumerate(histogram))
    found = Acceptance("x", "all", rounds, rounds * k, accepted, accepted, tuple(histogram))
    survival = found.survival(k)
    assert all(0 <= s <= 1 for s in survival)
    assert list(survival) == sorted(survival, reverse=True)
    assert sum(survival) == pytest.approx(accepted / rounds)


def test_the_profile_has_the_names_other_planners_read() -> None:
    records = measured("dice", k=3, tokens=20)
    [row] = [a for a in acceptance_table(records, ["dice-k3"]) if a.category == "all"]
    table = acceptance_table(records, ["dice-k3"])
    description = {
        "configurations": [{"name": "dice-k3", "free": 1}],
        "breakeven": "0", "artifact": "a", "split": "test", "prompts": 3, "max_new_tokens": 20,
        "dtype": "float64", "verifier": {"name": "tiny"},
    }  # fmt: skip
    profile = speculation_profile(Configuration("dice", 3), table, records, description)
    marginal, conditional = (
        profile[f"{kind}_accept_rates"] for kind in ("marginal", "conditional")
    )
    assert marginal == pytest.approx(row.survival(3), abs=1e-5)
    assert marginal[1] == pytest.approx(conditional[0] * conditional[1], abs=1e-5)
    assert profile["mean_accept_length"] == pytest.approx(1 + sum(marginal), abs=1e-5)
    assert profile["measurement_conditions"]["verify_width"] == 3  # K rows: the first is free
    lengths = profile["acceptance_length_histogram"]
    assert min(map(int, lengths)) == 1  # the verifier's own token counts
    assert sum(lengths.values()) == row.rounds
    assert set(profile["per_category"]) == {"chat", "code"}
    assert json.loads(json.dumps(profile)) == profile


def test_a_torn_last_line_is_cut_off_and_a_broken_one_is_named(tmp_path: Path) -> None:
    records = measured("oracle", k=2, tokens=8)
    path = tmp_path / "requests.jsonl"
    with RecordFile(path) as file:
        for record in records:
            file.append(record)
    whole_text = path.read_text()
    assert read_records(path) == records
    path.write_text(whole_text[:-40])
    with RecordFile(path) as file:
        assert file.records == records[:-1]
        file.append(records[-1])
    assert path.read_text() == whole_text
    path.write_text("{}\n" + whole_text)
    with pytest.raises(DataError, match="line 1 is not a record"):
        read_records(path)
