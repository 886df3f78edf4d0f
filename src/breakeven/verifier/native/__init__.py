"""The fast CPU path: narrow passes of the lean decoder in one small C++ library.

A plain step cannot be faster than the memory that holds the weights, and a pass of a few rows
need not be slower than that. What stands between the PyTorch decoder and this limit is some 600
small operations in a pass and matrix products made for wide inputs. Here one call runs the whole
body (norms, packed linears, rotary embedding, cache writes, attention, SwiGLU, gated adapters,
taps) on threads that meet at light barriers, and another the head, which can return the arg-max
ids without writing logits.

**A row's result does not depend on its company.** Every output is one chain of multiply-adds over
its inputs in their order, and attention takes slots in their order with hidden ones weighing
exactly 0. So a verify pass of W rows gives the very bits of W plain steps, in any batch, on any
number of threads, and greedy speculation is exact bit for bit (``tests/test_native.py``).

**Memory.** Weights are kept once, as panels of 16 outputs in huge pages (which raise the read
rate by a fifth where the system grants them); the plain copy is given up and comes back when a
pass needs gradients. Visibility is computed from the row layout, so no mask of the size of the
context exists; the workspace grows to the widest pass and stays.

``source/`` holds the C++ (vector extensions of GCC and Clang: AVX-512, AVX2, SSE2 and NEON from
one source), ``build.py`` compiles it at first use, ``library.py`` speaks to it,
``panels.py`` holds weights and ``body.py`` runs passes. ``BREAKEVEN_NATIVE=0`` switches it off;
then, or without a compiler, the PyTorch path goes on.
"""
