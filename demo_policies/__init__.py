"""How the policies of the demonstrations were made and measured; not shipped in the wheel."""
