"""The studio: the jobs of the command line on a page in the browser. No mathematics; `gradio` is imported only here."""
