"""The market's registry of images: Distribution, with a door before it that keeps account."""
