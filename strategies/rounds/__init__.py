"""The loop over rounds: which sites are asked, which replies are awaited, what is counted and stored."""
