"""One table of outcomes: logged responses and their scores, whichever tool wrote them."""
