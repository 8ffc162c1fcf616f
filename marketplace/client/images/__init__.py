"""Images in the market's registry: what lies there, pushing, deleting."""
