"""What a site sends of its update: how far each tensor moved, rules that choose by it, and the masks with which a choice travels."""
