"""``tally bench``: measure and print figures. A part of the source checkout, not of the installed
product.
"""
