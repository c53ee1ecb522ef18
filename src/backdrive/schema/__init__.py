"""What the layers above agree on, each said once: record layouts, state fields and kernel signatures."""
