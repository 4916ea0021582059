"""Whether a machine has what runs need. Looks alone: nothing is changed, started or asked over a network, and torch is not imported where
that can be avoided, since it takes seconds."""
