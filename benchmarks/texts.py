"""Prompts that no artifact holds: copy-heavy tasks, and text without any structure."""

from __future__ import annotations

import random
from dataclasses import dataclass

from breakeven.data.prompt import Message
from breakeven.data.render import Renderer

REPORT = """The harbour office reported on Monday that 14 ships had been turned away in October \
because the new crane was not yet certified. "We expected the inspectors in September," said the \
harbour master, Ilse Brandt, "and they came on the last day of October." The crane lifts 60 tons, \
twice as much as the old one, and should serve two ships an hour from the middle of November on. \
Fishermen complained that their berths were moved to the north pier without notice."""

NOTICE = """Visitors must leave bags and umbrellas at the desk beside the main entrance. Guided \
tours begin every day at 10:30 and 14:00 in the tower hall. Photographs without flash are allowed \
in all rooms but the map room. The garden closes one hour before the museum. Children under twelve \
enter free when an adult is with them. The lift between the first and the third floor is being \
repaired until the end of May; please use the stairs in the east wing."""

CODE = """def read_orders(path):
    orders = []
    with open(path) as file:
        for line in file:
            name, amount, price = line.strip().split(",")
            orders.append({"name": name, "amount": int(amount), "price": float(price)})
    return orders


def total(orders):
    result = 0
    for order in orders:
        result = result + order["amount"] * order["price"]
    return result
"""

SETTINGS = """server:
  host: 127.0.0.1
  port: 8080
  workers: 2
  timeout_seconds: 30
storage:
  folder: /var/lib/orders
  keep_days: 14
  compress: true
logging:
  level: info
  file: /var/log/orders.log
"""

COPIES = (
    f"Summarise this report in three sentences and quote everything that was said.\n\n{REPORT}",
    f"Repeat this notice word for word, with each sentence on a line of its own.\n\n{NOTICE}",
    f"Rename the function total to order_total and print the whole file.\n\n```python\n{CODE}```",
    f"Add a type hint to the parameter path and print the whole file.\n\n```python\n{CODE}```",
    f"Change the port to 9090 and print the whole file.\n\n```yaml\n{SETTINGS}```",
    f"Quote the sentences of this text that contain a number.\n\n{REPORT} {NOTICE}",
)


@dataclass(frozen=True, slots=True)
class Text:
    """One prompt, rendered; see :class:`breakeven.measure.prompts.Prompt`."""

    id: str
    category: str
    prompt_ids: tuple[int, ...]


def copy_heavy(renderer: Renderer) -> list[Text]:
    """Summaries with quotations and edits of files, through the chat template."""
    return [
        Text(f"copy-{i}", "copy-heavy", tuple(renderer.ids((Message("user", text),))))
        for i, text in enumerate(COPIES)
    ]


def random_tokens(count: int, vocab_size: int, seed: int = 0, length: int = 60) -> list[Text]:
    """Tokens drawn uniformly: nothing a drafter has learned or can look up."""
    dice = random.Random(seed)
    return [
        Text(f"random-{i}", "random tokens", tuple(dice.choices(range(vocab_size), k=length)))
        for i in range(count)
    ]
