"""What passes cost and what they earn: the ledger, the cost curve, break-even, the oracle.

Pure arithmetic on plain numbers; nothing here knows about tensors. The run-time controller, the
benchmark and the report all compute from these modules.
"""
