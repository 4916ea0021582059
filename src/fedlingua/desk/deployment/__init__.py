"""What a server and its sites need before they meet: certificates, and keys that name the sites."""
