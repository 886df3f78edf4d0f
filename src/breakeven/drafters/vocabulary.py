"""A draft vocabulary: the tokens a drafter may propose, a subset of the verifier's.

A drafter's head over the whole vocabulary is most of its price (ALGORITHMS 2.3 and 8.3), and a
few thousand tokens cover nearly everything a model says in one domain. Verification always uses
the full vocabulary, so pruning can only cost acceptance, never correctness.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import torch
from torch import Tensor

from breakeven.errors import DrafterError


class DraftVocabulary:
    """``ids[d]`` is the verifier's id of draft id ``d``, ascending.

    >>> vocabulary = DraftVocabulary(torch.tensor([2, 5]), target_size=8)
    >>> vocabulary.to_target(torch.tensor([1, 0])).tolist()
    [5, 2]
    >>> vocabulary.to_draft(torch.tensor([5, 3])).tolist()  # 3 is not in it
    [1, -1]
    """

    def __init__(self, ids: Tensor, target_size: int) -> None:
        if len(ids) == 0 or int(ids.min()) < 0 or int(ids.max()) >= target_size:
            raise DrafterError(
                f"a draft vocabulary holds 1 or more ids from 0 to {target_size - 1}; this one has "
                f"{len(ids)} ids{f' up to {int(ids.max())}' if len(ids) else ''}"
            )
        if not bool((ids[1:] > ids[:-1]).all()):
            raise DrafterError("the ids of a draft vocabulary must ascend without repeats")
        self.ids = ids
        self._draft = torch.full((target_size,), -1, dtype=torch.long, device=ids.device)
        self._draft[ids] = torch.arange(len(ids), device=ids.device)

    @classmethod
    def frequent(
        cls, texts: Iterable[Iterable[int]], size: int, target_size: int
    ) -> DraftVocabulary:
        """The ``size`` most frequent ids of ``texts`` (fewer when the texts have fewer)."""
        counts = Counter(token for text in texts for token in text)
        chosen = sorted(counts, key=lambda token: (-counts[token], token))[:size]
        return cls(torch.tensor(sorted(chosen), dtype=torch.long), target_size)

    def __len__(self) -> int:
        return len(self.ids)

    def to_target(self, draft_ids: Tensor) -> Tensor:
        """The verifier's ids of draft ids, of any shape."""
        return self.ids[draft_ids]

    def to_draft(self, target_ids: Tensor) -> Tensor:
        """Draft ids of the verifier's ids, of any shape; -1 where the token is not in it."""
        return self._draft[target_ids]

    def coverage(self, texts: Iterable[Iterable[int]]) -> float:
        """The share of tokens of ``texts`` that are in it, in 0-1."""
        known = set(self.ids.tolist())
        tokens = [token in known for text in texts for token in text]
        return sum(tokens) / max(1, len(tokens))
