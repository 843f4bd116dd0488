"""Running attacks on whole data sets, and judging what they return."""
