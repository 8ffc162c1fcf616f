"""Connections to one market: HTTP, the payer's websocket, signing in."""
