"""The router: it is paid by consumers over hops in, pays providers over hops out, and risks nothing
but what it relies on before a block is deep.
"""
