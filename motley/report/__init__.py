"""Tables, figures and the page; they read records only."""
