"""Local training in several processes of one machine, a GPU each."""
