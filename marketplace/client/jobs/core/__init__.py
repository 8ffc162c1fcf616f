"""What becomes of one job at its consumer, decided purely; the rooms around it perform."""
