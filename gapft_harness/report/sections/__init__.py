"""Build the report's sections: tables and figures of findings, with static notes."""
