"""Jobs from the consumer's side: files, images, quotes, the way to a paid end, the bill."""
