"""The fast CPU path: narrow passes of the lean decoder in one small C++ library.

A plain step cannot be faster than the memory that holds the weights, and a pass of a few rows
need not be slower than that. What stands between the PyTorch decoder and this limit is some 600
small operations in a pass and matrix products made for wide inputs. Here one call runs the whole
body (norms, packed linears, rotary embedding, cache writes, attention, SwiGLU, gated adapters,
taps) and another the head, which can return the arg-max ids without writing logits. Wide passes
(prefill, large batches) run here as well: at every width measured they were faster than oneDNN.

**A row's result does not depend on its company.** Every output is computed by the same chain of
multiply-adds whatever the width of the pass, the batch and the number of threads, and attention
takes slots in their order with hidden ones weighing exactly 0. So a verify pass of W rows gives
the very bits of W plain steps, rows with the gate off those of a pass without adapter, and greedy
speculation is exact bit for bit (``tests/test_native.py``).

**Memory.** Weights are kept once, as panels of 16 outputs in huge pages (which raise the read
rate by a fifth to a half where the system grants them); the plain copy is given up and comes back
when a pass needs gradients. Visibility is computed from the row layout, so no mask of the size of
the context exists; the workspace grows to the widest pass and stays.

**Threads.** The library has its own, as many as PyTorch is set to: OpenMP's barriers spin, and so
do its threads for milliseconds after each region. Ours spin for 60 µs, then sleep, and where other
processes hold the cores some of them withdraw (:func:`~breakeven.verifier.native.library.crowded`).

``source/`` holds the C++ (vector extensions of GCC and Clang: AVX-512, AVX2, SSE2 and NEON from
one source), ``build.py`` compiles it at first use, ``library.py`` speaks to it and says whether it
is active (:func:`~breakeven.verifier.native.library.status`), ``panels.py`` holds weights and
``body.py`` runs passes. ``BREAKEVEN_NATIVE=0`` switches it off; then, or without a compiler, the
PyTorch path goes on.
"""
