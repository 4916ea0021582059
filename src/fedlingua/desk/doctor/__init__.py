"""Check a machine's requirements. Changes and starts nothing, uses no network, and avoids importing torch, which takes seconds."""
