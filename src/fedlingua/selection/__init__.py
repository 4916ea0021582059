"""The part of an update that a site sends: deviations of tensors, rules that choose by them, and masks that describe the choice."""
