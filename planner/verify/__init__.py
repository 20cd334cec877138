"""Verifying, the pure half: what to try, what a trial showed, what a collapse looks like, what to learn."""
