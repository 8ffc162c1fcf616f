"""The console: pages rendered by the market from the same functions as the API."""
