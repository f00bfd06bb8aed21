"""What models are trained for: tokens of names, longest paths."""
