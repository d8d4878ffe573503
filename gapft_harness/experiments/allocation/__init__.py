"""Coverage against repetition: which problems the same responses are spent on."""
