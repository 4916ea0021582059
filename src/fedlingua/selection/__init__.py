"""Selection of the part of an update that a site sends: deviations of tensors, rules that use them, masks of the result."""
