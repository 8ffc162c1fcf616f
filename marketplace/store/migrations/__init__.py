"""The schema's history, packaged so that an installed market can bring its database up to date."""
