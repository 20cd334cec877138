"""Routing statistics: recordings of which experts a model used, read, captured and analysed.

``load`` finds out what a file is, ``capture`` makes one, ``analysis`` says what it means for a pool of experts.
"""
