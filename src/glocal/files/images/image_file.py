"""The old place of `read_image` and `write_image`, kept for one release."""

from glocal.files.images.read import image_size as image_size
from glocal.files.images.read import read_image as read_image
from glocal.files.images.read import read_recipe as read_recipe
from glocal.files.images.write import write_image as write_image
