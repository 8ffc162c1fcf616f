"""What transactions are made of: outputs, protocol parameters, signatures, scripts."""
