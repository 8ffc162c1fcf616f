"""What each event is answered with, by where it comes from: ``decide`` chooses among them."""
