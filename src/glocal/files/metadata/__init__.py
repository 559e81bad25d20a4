"""What travels with a picture: EXIF, XMP, colour profiles."""
