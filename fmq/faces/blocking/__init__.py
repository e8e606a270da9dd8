"""The public calls as functions that block. tools/make_faces.py makes these files."""
