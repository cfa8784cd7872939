"""The parts of a page: one module for each kind of content."""
