"""The tables of what was trained and measured: training, Tables 1 and 2, ablations."""

from __future__ import annotations

from breakeven.cost.oracle import PAPER
from breakeven.paper import settings as differs
from breakeven.paper.published import PUBLISHED
from breakeven.paper.reading import row_of
from breakeven.paper.table import NONE, Results, Table, exactness, interval, spread, text


def training(verifier: str, results: Results) -> Table | None:
    """What was trained, beside the paper's training."""
    rows = []
    for name in ("peft-bd", "anchored", "fastmtp"):
        record = results.get(name)
        trained = record and record["budget"]
        if not trained:
            continue
        accuracy = trained["accuracy"]
        mtp, own = name == "fastmtp", name == "peft-bd"
        sizes = trained["parameters"]
        rows.append(
            (
                name,
                PUBLISHED.fastmtp_parameters if mtp else PUBLISHED.parameters,
                f"{sizes['trainable']:,} of {sizes['total']:,}",
                f"{PUBLISHED.sequences:,}",
                f"{trained['sequences']:,}",
                f"{PUBLISHED.loss} / {PUBLISHED.masked_accuracy} / {PUBLISHED.target_accuracy}"
                if own
                else NONE,
                " / ".join(
                    text(accuracy.get(key), 4)
                    for key in ("loss", "masked_token", "target_token_of_masked")
                ),
                text(trained["acceptance_length"]),
                differs.joined(differs.model(verifier), differs.budget(record)),
            )
        )
    columns = (
        "drafter", "parameters, paper", "here", "texts, paper", "here",
        "loss / masked / target accuracy, paper", "here", "AL (validation)", "what differs",
    )  # fmt: skip
    caption = (
        "Texts are steps times the texts of a step. Masked-token accuracy: right / masked tokens; "
        "target-token accuracy: right masked tokens / all tokens of the blocks, our reading of the "
        "paper's word. AL: tokens committed / verify passes, bonus token included."
    )
    return Table("training", "Training", columns, tuple(rows), caption) if rows else None


def throughput(verifier: str, results: Results) -> Table | None:
    """Table 1: the optimised engine."""
    result = results.get("bench")
    if result is None:
        return None
    published = {
        "ar": ("plain decoding", PAPER.plain, PAPER.plain_spread, 1.0, differs.GRAPHS),
        "fastmtp": (
            "FastMTP", PAPER.fastmtp, PAPER.fastmtp_spread, PAPER.fastmtp_committed,
            differs.GRAPHS,
        ),
        "peft-bd": (
            "PEFT-BD", PAPER.peft_bd, PAPER.peft_bd_spread, PAPER.peft_bd_committed,
            differs.EAGER,
        ),
    }  # fmt: skip
    audits = {audit["config"]: audit for audit in result["audits"]}
    rows = []
    for config, (name, speed, sd, committed, mode) in published.items():
        row = row_of(result, config)
        if row is None:
            continue
        budget = "" if config == "ar" else differs.budget(results.get(config))
        rows.append(
            (
                name,
                f"{speed} ± {sd:.2f}",
                spread(row["speed"]),
                interval(row["speed"]["low"], row["speed"]["high"]),
                text(speed / PAPER.plain),
                "1" if config == "ar" else text(row["ratio"]),
                NONE if config == "ar" else interval(row["ratio_low"], row["ratio_high"]),
                text(committed),
                text(row["committed"]),
                audits[config]["verdict"] if config in audits else NONE,
                differs.joined(
                    differs.model(verifier),
                    differs.machine(result["machine"]),
                    differs.mode(result["mode"], result["dtype"], mode),
                    budget,
                ),
            )
        )
    columns = (
        "method", "tok/s, paper", "tok/s, here", "95 % of the mean", "ratio, paper", "ratio, here",
        "95 %", "AL, paper", "AL, here", "output", "what differs",
    )  # fmt: skip
    runs = result["figures"][0]["speed"]["runs"]
    caption = (
        f"Mean ± standard deviation over {runs} repeated runs, with Student's interval of the "
        "mean. Ratio: plain decoding's time / the method's on the same prompts, interval by paired "
        "bootstrap over prompts. AL: tokens committed / verify passes, bonus token included (the "
        'paper\'s "accepted tokens"). Output: exactness audit against plain decoding.'
    )
    return Table("table1", "Table 1. Throughput in the engine", columns, tuple(rows), caption)


def diagnostics(verifier: str, results: Results) -> Table | None:
    """Table 2: the transformers loop."""
    result = results.get("loop")
    if result is None:
        return None
    own = result["paths"]["loop"]
    audits = {audit["config"]: audit for audit in own["audits"]}
    published = {
        "ar": ("plain decoding", None, None),
        "peft-bd": ("PEFT-BD, unanchored", PUBLISHED.loop_committed, PUBLISHED.loop_speed),
        "anchored": ("PEFT-BD, anchored", PUBLISHED.loop_anchored, PUBLISHED.loop_anchored_speed),
    }
    rows = []
    for config, (name, committed, speed) in published.items():
        row = row_of(own, config)
        if row is None:
            continue
        plain, audit = config == "ar", audits.get(config)
        rows.append(
            (
                name,
                text(committed),
                text(row["committed"]),
                NONE if committed is None else text(PUBLISHED.token_rate(committed)),
                NONE if plain else text(row["token_rate"]),
                NONE if plain else text(row["block_rate"]),
                text(speed, 1),
                spread(row["speed"]),
                NONE if plain else text(row["ratio"]),
                NONE if audit is None else exactness(audit),
                differs.joined(
                    differs.model(verifier),
                    differs.machine(result["machine"]),
                    differs.mode(result["modes"]["loop"], result["dtype"], differs.LOOP),
                    "" if plain else differs.budget(results.get(config)),
                ),
            )
        )
    columns = (
        "loop", "committed a round, paper", "here", "token acceptance, paper (derived)", "here",
        "block acceptance, here", "tok/s, paper", "tok/s, here", "ratio, here",
        "exact output", "what differs",
    )  # fmt: skip
    caption = (
        "Token acceptance: accepted drafts / drafted tokens; the paper's is derived from its "
        "committed tokens and 16 drafts. Block acceptance: share of whole blocks whose every draft "
        "was accepted. Exact output: answers equal to plain decoding's in the same loop, each "
        "difference classed by re-scoring with the verifier. The paper's two speeds are the ends "
        "of its printed range."
    )
    return Table("table2", "Table 2. Hugging Face diagnostic loop", columns, tuple(rows), caption)


def ablations(verifier: str, results: Results) -> Table | None:
    """Denoising steps, the wrong cache, the root in the block."""
    result = results.get("ablations")
    if result is None:
        return None
    names: dict[str, tuple[str, str]] = {
        "one-step": ("one denoising step, unanchored", text(PAPER.peft_bd_committed)),
        "two-steps": ("two steps, filled tokens stay", text(PAPER.two_step_committed)),
        "two-steps-refilled": (
            "two steps, all predicted anew",
            f"{PAPER.two_step_committed} (if this is what the paper ran)",
        ),
        "verifier-cache": ("drafts read the verifier's cache", NONE),
        "anchored": ("the root in the block", f"{PUBLISHED.loop_anchored} (loop)"),
    }
    rows = []
    for config, (name, published) in names.items():
        row = row_of(result, config)
        if row is None:
            continue
        source = "anchored" if config == "anchored" else "peft-bd"
        rows.append(
            (
                name,
                published,
                text(row["committed"]),
                text(row["token_rate"]),
                text(row["ratio"]),
                interval(row["ratio_low"], row["ratio_high"]),
                differs.joined(differs.model(verifier), differs.budget(results.get(source))),
            )
        )
    columns = (
        "variant", "committed a round, paper", "here", "token acceptance", "ratio", "95 %",
        "what differs",
    )  # fmt: skip
    caption = (
        "All but the last are the same weights, decoded differently; the anchored drafter is "
        "trained with the root in its block. The paper does not say how its two steps treat filled "
        "tokens."
    )
    return Table("ablations", "Ablations", columns, tuple(rows), caption)
