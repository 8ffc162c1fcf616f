"""What a placement costs the market, and the costs of each kind of request, kept up to date."""
