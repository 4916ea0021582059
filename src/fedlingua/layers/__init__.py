"""What is plugged into a round: each optional feature is a layer, with what it does at the server and at a site in one room."""
