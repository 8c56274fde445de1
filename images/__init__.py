"""The work. Container images and job templates."""
