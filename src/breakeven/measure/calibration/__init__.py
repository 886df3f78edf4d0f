"""What passes cost here: measured without any trained drafter, checked by decoding for real."""
