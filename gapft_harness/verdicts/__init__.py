"""Responses and what is said of them, wherever they were logged; knows neither lm_eval nor runs."""
