"""The command line: ``app.py`` holds the program, every verb is a module of its own."""
