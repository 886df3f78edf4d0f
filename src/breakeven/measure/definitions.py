"""What each number of a benchmark run means; written into ``configuration.json``."""

from __future__ import annotations

DEFINITIONS = {
    "round": "draft, verify, accept, commit; one verify pass",
    "num_speculative_tokens": "K, the tokens drafted per round at most",
    "verify_width": "the rows of a verify pass at most: root and drafts, K + 1; K with a free "
    "first token, whose draft pass ran the root",
    "acceptance_length": "committed tokens per verify pass, the verifier's own token included, "
    "after truncation by end of sequence or limit; plain decoding has 1",
    "acceptance_rate": "accepted drafts / drafted tokens, in 0-1, before truncation",
    "survival_k": "share of all rounds whose first k drafts were all accepted, before truncation",
    "drafted_k": "share of all rounds in which at least k tokens were drafted; survival_k / "
    "drafted_k is the share of those whose first k drafts were all accepted",
    "tokens_per_s": "tokens after the first / decode time, where decode time runs from the end of "
    "the prefill pass to the last token and includes the drafter's own start-up",
    "ratio": "total decode time of plain decoding / total decode time of the configuration over "
    "the same prompts; per token, where the outputs differ in length",
    "ratio_low, ratio_high": "95 % interval of the ratio, studentised bootstrap over prompts; each "
    "row's own in performance.csv, wider in verdict.json, where it holds for the best of all",
    "end_to_end_ratio": "the same with prefill included",
    "repeats": "of each prompt's repeats the one with the middle decode time counts (of an even "
    "number the two in the middle), for speed, prices and acceptance alike",
    "plain step": "decode time of plain decoding per token after the first, same run",
    "c_d, c_v, c_s": "draft, verify and remaining time of a round in plain steps",
    "break_even": "c_d + c_v + c_s: the acceptance length at which the speed equals plain "
    "decoding's",
}
